"""The feed as a user runs it: what it counts, what it refuses, and that nothing is lost."""

import json
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark import feed
from spark.feeding.rejects import (
    RowCounts,
    count_written_rejects,
    require_all_rows,
    require_replaceable,
    write_rejects,
)
from spark.job.failures import JobRefused
from spark.samples.flights import feed as flights_feed
from spark.samples.flights import reconcile as flights_reconcile
from spark.schemas import REJECTED_ROWS
from tests.spark.bookings import DOCUMENT

HEADER = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,arr_delay,carrier,flight,"
LINES = (
    HEADER + "tailnum,origin,dest",
    "2013,1,1,517,515,2,830,11,UA,1545,N14228,EWR,IAH",
    "2013,1,1,517,515,2,830,11,UA,1545,N14228,EWR,IAH",
    "2013,1,1,NA,1630,NA,NA,NA,EV,4308,N18120,EWR,RDU",
    "2013,1,1,NA,1530,NA,NA,NA,AA,791,NA,LGA,DFW",
    "2013,1,1,2575,600,0,700,0,UA,1,N14228,EWR,IAH",
    "2013,1,2,517,515,2,830,11,UA,1545,N14228,EWR,IAH",
)


def test_rows_that_vanish_stop_the_feed() -> None:
    with pytest.raises(JobRefused, match="10 rows were read, but 7 became events and 2 rejects"):
        require_all_rows(RowCounts(10, 14, 3, {"duplicate": 2}), accepted=7)


def test_a_dry_run_accounts_for_every_row_and_needs_no_connection(
    jobs_here: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("LOCKSTEP_REGIONS", raising=False)
    source, summary, rejects = (tmp_path / name for name in ("day.csv", "sum.json", "rejects"))
    source.write_text("\n".join(LINES) + "\n")

    status = flights_feed.main(
        ["--dry-run", f"--source={source}", f"--summary={summary}", f"--rejects={rejects}"]
    )

    assert status == 0
    told = json.loads(summary.read_text())
    assert told.pop("seconds") > 0
    assert told == {
        "rows": 5,
        "events": 3,
        "sessions": 2,
        "rejects": {"duplicate": 1, "malformed dep_time": 1, "missing tailnum": 1},
        "sent": 0,
        "pending": 0,
        "repeated": 0,
        "busy_seconds": 0.0,
    }
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "5 rows became 3 events of 2 sessions"
    assert "  1 missing tailnum" in lines
    rejected = [json.loads(line) for file in rejects.glob("part-*") for line in file.open()]
    assert {row["flight"]: row["reason"] for row in rejected} == {
        "791": "missing tailnum",
        "1": "malformed dep_time",
        "1545": "duplicate",
    }


COLUMNS = {"account": "string", "line": "int"}
MAPPING = DOCUMENT | {"format": "csv", "columns": COLUMNS, "body": ["line"]}


@pytest.fixture
def mapped(jobs_here: None, tmp_path: Path) -> list[str]:
    """The words of a dry run over rows.csv by a mapping."""
    (tmp_path / "mapping.json").write_text(json.dumps(MAPPING))
    files = {"source": "rows.csv", "mapping": "mapping.json", "summary": "sum.json"}
    words = [f"--{name}={tmp_path / file}" for name, file in files.items()]
    return ["--dry-run", *words, "--group=bank"]


def test_an_empty_source_is_no_error_and_becomes_nothing(mapped: list[str], tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("account,line\n")

    assert feed.main([*mapped, f"--rejects={tmp_path / 'rejects'}"]) == 0

    told = json.loads((tmp_path / "sum.json").read_text())
    assert [told[name] for name in ("rows", "events", "sessions", "rejects")] == [0, 0, 0, {}]


@pytest.mark.proof
def test_rejects_go_to_a_url_once_and_replace_nothing_there(
    mapped: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rows.csv").write_text("account,line\nacc-1,1\nacc-1,two\n,3\nacc-1,1\n")
    words = [*mapped, f"--rejects=file://{tmp_path}/lake/rejects"]

    assert feed.main(words) == 0

    files = (tmp_path / "lake" / "rejects").glob("part-*")
    rejects = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    found = {row["reason"]: json.loads(row["row"]) for row in rejects}
    assert found == {
        "malformed line": {"account": "acc-1", "line": "two"},
        "missing account": {"line": "3"},
        "repeated key": {"account": "acc-1", "line": "1"},
    }

    assert feed.main(words) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert "lake/rejects already exists" in said


@pytest.mark.parametrize("program", [flights_feed, flights_reconcile])
def test_without_connections_the_first_missing_setting_is_named(
    program: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("LOCKSTEP_REGIONS", "Cosmos", "Cosmos__accountEndpoint"):
        monkeypatch.delenv(name, raising=False)

    status = program.main([])  # type: ignore[attr-defined]

    assert status == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert "LOCKSTEP_REGION" in error or "Cosmos" in error


def test_without_java_the_feed_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    status = flights_feed.main(
        ["--dry-run", "--master=local[1]", f"--rejects={tmp_path / 'rejects'}"]
    )

    assert status == 2
    assert "Spark needs Java 17 or newer" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--late=reject"], "--late would have no effect without --manifest"),
        (["--changed=append", "--max-changed=5%"], "--changed and --max-changed would have no"),
        (["--accept-mapping"], "--accept-mapping would have no effect"),
        (["--full"], "--full has no effect without --manifest"),
        (["--every=5"], "--checkpoint and --every have no effect without --stream"),
        (["--checkpoint=c", "--manifest=m"], "have no effect without --stream"),
        (["--stream", "--manifest=m", "--checkpoint=c", "--full"], "reads every file in full"),
        (["--max-changed=lots", "--manifest=m"], "a whole number, or a share as in 5%"),
        (["--lanes=0"], "a whole number from 1"),
    ],
)
def test_a_word_without_effect_is_refused(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        feed.main(["--source=s", "--mapping=m", "--group=g", *words])

    assert left.value.code == 2
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("program", [flights_feed, flights_reconcile])
@pytest.mark.parametrize("days", ["0", "-1", "two", "1.5"])
def test_days_are_whole_and_above_zero(
    program: object, days: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        program.main([f"--days={days}"])  # type: ignore[attr-defined]

    assert left.value.code == 2
    assert "--days: a whole number from 1" in capsys.readouterr().err


def test_a_batch_that_comes_again_after_a_crash_may_write_its_rejects_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = f"file://{tmp_path}/rejects/batch-7"
    for reason in ("first", "second"):
        rejected = spark.createDataFrame([("{}", reason)], REJECTED_ROWS)
        write_rejects(rejected, folder, replace=True)

    assert count_written_rejects(spark, folder) == {"second": 1}
    with pytest.raises(AnalysisException, match="PATH_ALREADY_EXISTS"):
        write_rejects(rejected, folder, replace=False)


def test_a_folder_with_other_things_in_it_is_not_replaced_by_rejects(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "part-0000.json").touch()
    (tmp_path / ".part-0000.json.crc").touch()
    require_replaceable(spark, str(tmp_path))
    require_replaceable(spark, str(tmp_path / "new"))

    (tmp_path / "thesis.tex").touch()

    for place in (tmp_path, tmp_path / "thesis.tex"):
        with pytest.raises(JobRefused, match=r"thesis\.tex"):
            require_replaceable(spark, str(place))
