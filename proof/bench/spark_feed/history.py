"""The price of many earlier runs for a feed of one new event, beside the first feed of all.

    python -m proof.bench.spark_feed.history [--runs N] [--logs DIR]

Writes a manifest as so many feeds of one event each would have left it, with its summary, and feeds
one more event into a local cloud; before that, the same into an empty manifest. The two take turns.
*seconds* are those from the start of the job until its plan is bound and sending begins, *busy* the
processor time until then of all its processes, Java and Python.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from proof.bench.spark_feed.runs import add_logs_argument, running_fresh_cloud
from proof.testbed.cloud import ROOT, app_settings
from proof.testbed.command import RunFailed
from spark.facts import extract_facts
from spark.manifest import SUMMARISED_RUNS, Manifest
from spark.mapping import SourceMapping
from spark.numbering import digest_event, number_facts
from spark.runtime import open_spark
from spark.schemas import PLAN
from spark.sources import read_table

ROUNDS = 3
SESSIONS = 400
BOUND = " is bound to "
GROUP = "bank"
MAPPING = {
    "format": "csv",
    "columns": {"account": "string", "line": "int", "amount": "int"},
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["amount"],
    "type": "account.add",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proof.bench.spark_feed.history",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=2000, help="earlier runs (2000)")
    add_logs_argument(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch:
        folder = Path(scratch)
        (folder / "mapping.json").write_text(json.dumps(MAPPING))
        write_history(folder, options.runs)
        with running_fresh_cloud(folder, options.logs) as feed_cloud:
            settings = app_settings(feed_cloud.cloud)
            sys.stdout.write(f"{'earlier runs':>14}{'seconds':>9}{'busy':>7}\n")
            for each in range(ROUNDS):
                for runs, manifest in ((0, f"new-{each}"), (options.runs, "manifest")):
                    seconds, busy = feed_one(folder, manifest, options.runs + each, settings)
                    sys.stdout.write(f"{runs:14}{seconds:9.1f}{busy:7.1f}\n")
                    sys.stdout.flush()


def write_history(folder: Path, runs: int) -> None:
    """Write a manifest with so many sent runs of one event each; the sessions take turns."""
    with open_spark("local[2]") as spark:
        rows = plan_rows(spark, folder, runs)
        manifest = Manifest(spark, str(folder / "manifest"))
        summed_up = runs // SUMMARISED_RUNS * SUMMARISED_RUNS
        for run in range(1, summed_up + 1):
            write_run(folder / "manifest", run, rows.slice(run - 1, 1))
        if summed_up:
            manifest.summarise()
        for run in range(summed_up + 1, runs + 1):
            write_run(folder / "manifest", run, rows.slice(run - 1, 1))


def plan_rows(spark: SparkSession, folder: Path, runs: int) -> pa.Table:
    """Return what a feed plans for so many events, in the order of their lines."""
    source = folder / "history.csv"
    lines = (f"acc-{line % SESSIONS},{line},1\n" for line in range(runs))
    source.write_text("account,line,amount\n" + "".join(lines))
    mapping = SourceMapping.parse(MAPPING)
    facts = extract_facts(read_table(spark, str(source), mapping), mapping)
    plan = number_facts(facts.facts, GROUP).withColumn("digest", digest_event())
    table = plan.select(*PLAN.names).orderBy("place").toArrow()
    facts.release()
    return table.cast(to_arrow_schema(PLAN))


def write_run(manifest: Path, run: int, row: pa.Table) -> None:
    plan = manifest / f"plan/run={run}/feed=bench"
    plan.mkdir(parents=True)
    parquet.write_table(row, plan / "part-0.parquet")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    values = {"run": run, "feed": "bench", "events": 1, "since": now, "group": GROUP, "source": ""}
    for step in ("planned", "sent"):
        file = manifest / f"steps/run={run}/step={step}/step.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(values | {"step": step}) + "\n")


def feed_one(
    folder: Path, manifest: str, line: int, settings: Mapping[str, str]
) -> tuple[float, float]:
    """Feed one new event; seconds and processor time until it is bound."""
    source = folder / f"new-{line}.csv"
    source.write_text(f"account,line,amount\nacc-{line % SESSIONS},{line},1\n")
    words = [f"--source={source}", f"--mapping={folder / 'mapping.json'}", f"--group={GROUP}"]
    words += [f"--manifest={folder / manifest}", f"--rejects={folder / 'rejects'}"]
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "spark.feed", *words],
        env=os.environ | dict(settings),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        said: list[str] = []
        taken = None
        for text in child.stderr or ():
            said.append(text)
            if BOUND in text:
                parent = psutil.Process(child.pid)
                times = [each.cpu_times() for each in (parent, *parent.children(recursive=True))]
                taken = time.monotonic() - began, sum(each.user + each.system for each in times)
    if child.returncode or taken is None:
        raise RunFailed(f"the feed ended with {child.returncode}: {''.join(said[-3:])}")
    return taken


if __name__ == "__main__":
    main()
