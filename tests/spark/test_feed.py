"""The feed as a user runs it: what it counts, what it refuses, and that nothing is lost."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark import feed, reconcile
from spark.intake import Intake, RejectsRefused, RowsLost, require_all, require_replaceable

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
    with pytest.raises(RowsLost, match="10 rows were read, but 7 became events and 2 rejects"):
        require_all(Intake(10, 14, 3, {"duplicate": 2}), accepted=7)


@pytest.mark.spark
def test_a_dry_run_accounts_for_every_row_and_needs_no_connection(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("LOCKSTEP_REGIONS", raising=False)
    monkeypatch.setattr(feed, "spark_session", lambda _master: nullcontext(spark))
    source, summary, rejects = (tmp_path / name for name in ("day.csv", "sum.json", "rejects"))
    source.write_text("\n".join(LINES) + "\n")

    status = feed.main(
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
        "owed": 0,
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


@pytest.mark.parametrize("program", [feed, reconcile])
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

    status = feed.main(["--dry-run", "--master=local[1]", f"--rejects={tmp_path / 'rejects'}"])

    assert status == 2
    assert "Spark needs Java 17 or newer" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("program", [feed, reconcile])
@pytest.mark.parametrize("days", ["0", "-1", "two", "1.5"])
def test_days_are_whole_and_above_zero(
    program: object, days: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        program.main([f"--days={days}"])  # type: ignore[attr-defined]

    assert left.value.code == 2
    assert "--days: a whole number from 1" in capsys.readouterr().err


def test_a_folder_with_other_things_in_it_is_not_replaced_by_rejects(tmp_path: Path) -> None:
    (tmp_path / "part-0000.json").touch()
    require_replaceable(str(tmp_path))
    require_replaceable(str(tmp_path / "new"))

    (tmp_path / "thesis.tex").touch()

    with pytest.raises(RejectsRefused, match=r"thesis\.tex"):
        require_replaceable(str(tmp_path))
