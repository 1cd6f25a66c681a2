"""Run production's messages again through an app's handlers: `python -m spark.backtest --help`.

Each task runs whole sessions, one after the other, and brings back the sums alone. So the size of
an archive costs time, and no memory: of a session a task holds one entry at a time.
"""

import json
import shutil
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from shared.backtest.__main__ import (
    BacktestRefused,
    add_backtest_arguments,
    how_chosen,
    refuse_combinations,
    run_bisect,
    tell_end,
)
from shared.backtest.app import AppUnusable, load_app, package_in
from shared.backtest.bisect import BisectRefused
from shared.backtest.history import build_history
from shared.backtest.kept_rows import RowsRefused, document_of
from shared.backtest.rerun import How, run_again
from shared.backtest.sums import Sums
from shared.backtest.what_if import ReadSessions, follow_change
from shared.domain.decision import CLOCK_SLACK_SECONDS
from shared.domain.errors import Misconfigured
from shared.ports import Document
from shared.storage.archive import GENESIS_POSITION
from spark.job.arguments import add_spark_arguments, parse_output_file
from spark.job.console import JobConsole
from spark.job.failures import JobRefused
from spark.job.runtime import open_spark
from spark.job.settings import with_settings
from spark.read.archive import ARCHIVE, WrittenSource, read_versions, with_lives
from spark.schemas import TEXT, build_schema

if TYPE_CHECKING:
    from pyarrow import RecordBatch

JOB = "backtest"
SUMS = build_schema(sums=TEXT)
# A name may be that of one session after another.
ORDER = ("session", "life", "position")
# What an app's folder holds for its makers only.
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "tests", "dist")

DESCRIPTION = """\
Run the messages that an archive keeps, or the journal itself, again through the handlers of an app,
and say what would be otherwise. Nothing is sent or written. The exit status is 0 where nothing
differs or all of it is expected, 1 where something does, and 2 where the backtest is refused."""


def main(arguments: Sequence[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = ArgumentParser(prog="python -m spark.backtest", description=DESCRIPTION)
    archive = "folder that spark.archive wrote (default: the journal in the account)"
    parser.add_argument("--archive", metavar="FOLDER", help=archive)
    export = (
        "write the entries of the sample as JSON lines for `lockstep backtest`, and run nothing"
    )
    parser.add_argument("--export", type=parse_output_file, metavar="FILE", help=export)
    add_backtest_arguments(parser)
    add_spark_arguments(parser)
    chosen = parser.parse_args(given)
    console = JobConsole(JOB, chosen.quiet)
    return console.run(lambda: run_backtest(chosen, given, console))


def run_backtest(chosen: Namespace, words: Sequence[str], console: JobConsole) -> int:
    try:
        refuse_combinations(chosen)
        if chosen.bisect:
            return tell_end(chosen, run_bisect(chosen, "spark.backtest", words))
        handlers = None if chosen.export else load_app(chosen.app)
        with open_spark(chosen.master) as spark, tempfile.TemporaryDirectory() as within:
            rows = choose_sessions(read_kept(spark, chosen.archive), chosen.sample)
            if handlers is None:
                return export_rows(rows, chosen.export, console)
            if chosen.what_if:
                read = reader_of(rows)
                sums = follow_change(chosen.what_if, read, handlers, how_chosen(chosen))
            else:
                app = ship_app(spark, chosen.app, Path(within))
                with console.show_progress("running again"):
                    sums = run_sessions(rows, app, how_chosen(chosen))
        return tell_end(chosen, sums)
    except (AppUnusable, BisectRefused, Misconfigured, BacktestRefused, RowsRefused) as error:
        raise JobRefused(str(error)) from error


def choose_sessions(rows: DataFrame, count: int | None) -> DataFrame:
    """The rows of so many sessions, the same ones each time; of all where none is given."""
    if count is None:
        return rows
    names = rows.select("session").distinct()
    chosen = names.orderBy(F.xxhash64("session"), "session").limit(count)
    return rows.join(chosen, on="session", how="left_semi")


def read_kept(spark: SparkSession, archive: str | None) -> DataFrame:
    """The rows (ARCHIVE) of an archive, or those that one of the whole journal would have now."""
    if archive is not None:
        return read_versions(spark, archive).select(*ARCHIVE.names)
    spark.dataSource.register(with_settings(WrittenSource))
    window = {"since": -1, "until": int(time()) + CLOCK_SLACK_SECONDS}
    return spark.read.format(WrittenSource.name()).options(**window).load()


def list_entries(rows: DataFrame) -> DataFrame:
    """The entries of rows, with the time of writing in seconds since 1970.

    By `session`, `life` and `position` they are sorted as the journal has them.
    """
    entries = with_lives(rows).where(F.col("position") != GENESIS_POSITION)
    return entries.withColumn("written", F.col("written").cast("double"))


def run_sessions(rows: DataFrame, find_app: Callable[[], Path], how: How) -> Sums:
    """The sums over all sessions of rows as `read_kept` has them."""
    entries = list_entries(rows).repartition("session").sortWithinPartitions(*ORDER)
    whole = Sums()
    for row in entries.mapInArrow(build_task(find_app, how), SUMS).collect():
        whole.add(Sums.read(json.loads(row.sums)))
    return whole


def build_task(
    find_app: Callable[[], Path], how: How
) -> Callable[[Iterator["RecordBatch"]], Iterator["RecordBatch"]]:
    """The function of a task: rows in the order of sessions and positions in, one sum out."""

    def run(batches: Iterator["RecordBatch"]) -> Iterator["RecordBatch"]:
        import pyarrow as pa

        handlers, sums = load_app(find_app()), Sums()
        rows = (row for batch in batches for row in batch.to_pylist())
        for session, kept in groupby(rows, key=lambda row: row["session"]):
            sums.take(session, run_again(build_history(map(document_of, kept)), handlers, how))
        column = pa.array([json.dumps(sums.write())], pa.string())
        yield pa.RecordBatch.from_arrays([column], names=SUMS.names)

    return run


def reader_of(rows: DataFrame) -> ReadSessions:
    """A function that reads the documents of a few sessions."""

    def read(names: Collection[str]) -> Mapping[str, Sequence[Document]]:
        found: dict[str, list[Document]] = {}
        wanted = list_entries(rows.where(F.col("session").isin(*names)))
        for row in wanted.orderBy(*ORDER).toLocalIterator():
            found.setdefault(row.session, []).append(document_of(row.asDict()))
        return found

    return read


def export_rows(rows: DataFrame, file: Path, console: JobConsole) -> int:
    """Write rows as JSON lines, which shared/backtest/kept_rows.py reads."""
    count = 0
    timed = rows.withColumn("written", F.col("written").cast("double"))
    with file.open("w", encoding="utf-8") as lines:
        for row in timed.orderBy("session", "written", "position").toLocalIterator():
            document = {"document": json.loads(row.document)}
            lines.write(json.dumps(row.asDict() | document) + "\n")
            count += 1
    console.log(f"{count} rows written to {file}")
    return 0


def ship_app(spark: SparkSession, folder: Path, within: Path) -> Callable[[], Path]:
    """Bring an app's modules to the workers, by an archive within a folder that stays until then.

    Returns what finds the app's folder in a worker.
    """
    package, copy = package_in(folder), within / "app"
    if package == "handlers":
        shutil.copytree(folder, copy, ignore=LEFT_OUT)
    else:
        handlers = package.replace(".", "/")
        shutil.copytree(folder / handlers, copy / handlers, ignore=LEFT_OUT)
        shutil.copy(folder / "function_app.py", copy)
    # Another app's archive of the same name is never taken for it.
    made = Path(shutil.make_archive(str(within / f"app-{within.name}"), "zip", copy))
    spark.sparkContext.addArchive(str(made))
    return lambda: Path(SparkFiles.get(made.name))


if __name__ == "__main__":
    sys.exit(main())
