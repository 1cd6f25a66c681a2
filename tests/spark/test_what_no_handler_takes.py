"""A dry run names the types and sessions that no handler takes, by the rule of the app itself."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cli.folders import write_app
from shared.backtest.app import load_app
from spark import feed
from spark.feeding import FeedConfig
from spark.feeding import feed as feed_table
from spark.feeding.unhandled import Unhandled, look_for_unhandled
from spark.job.console import JobConsole
from tests.spark.bookings import DOCUMENT, fact, facts_of

ROOT = Path(__file__).parents[2]
ROWS = [
    {"account": "account:1", "line": 1, "kind": "account.deposit"},
    {"account": "account:1", "line": 2, "kind": "account.deposit"},
    {"account": "rd-0", "line": 1, "kind": "account.deposit"},
    {"account": "rd-1", "line": 1, "kind": "account.deposit"},
    {"account": "account:1", "line": 3, "kind": "account.add"},
    # Its type has no patterns, and the sessions are another model's.
    {"account": "account:1", "line": 4, "kind": "flight.status"},
]
MAPPING = {k: v for k, v in DOCUMENT.items() if k != "type"} | {
    "columns": {"account": "string", "line": "int", "kind": "string"},
    "body": ["line"],
    "type_column": "kind",
}


@pytest.fixture
def words(jobs_here: None, tmp_path: Path) -> list[str]:
    (tmp_path / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "mapping.json").write_text(json.dumps(MAPPING))
    files = {"source": "rows.json", "mapping": "mapping.json", "summary": "sum.json"}
    files["rejects"] = "rejects"
    named = [f"--{name}={tmp_path / file}" for name, file in files.items()]
    return ["--dry-run", "--group=bank", *named]


def told(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((folder / "sum.json").read_text())["unhandled"]
    return found


def test_types_and_sessions_without_a_handler_are_named_and_counted(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("LOCKSTEP_REGIONS", raising=False)
    assert feed.main([*words, f"--app={ROOT}"]) == 0

    known = ", ".join(sorted(load_app(ROOT).by_type))
    nobody = f"no handler for type 'account.add'; known: {known}"
    elsewhere = "type 'account.deposit' is for account:*, not for session 'rd-0'"
    other_model = "type 'flight.status' is not for session 'account:1'"
    assert told(tmp_path) == [
        {"type": "account.add", "events": 1, "sessions": 1, "why": nobody},
        {"type": "account.deposit", "events": 2, "sessions": 2, "why": elsewhere},
        {"type": "flight.status", "events": 1, "sessions": 1, "why": other_model},
    ]
    out = capsys.readouterr().out
    assert "\n2 events of type 'account.deposit' in 2 sessions would be faults: type" in out


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Path]:
    """An app of its own folder, as `lockstep new app` writes it; no later test has its handlers."""
    path = list(sys.path)
    write_app(tmp_path / "bank")
    yield tmp_path / "bank"
    sys.path[:] = path
    for name in [name for name in sys.modules if name.partition(".")[0] == "handlers"]:
        del sys.modules[name]


def test_an_app_is_the_folder_that_is_named_or_this_one_and_without_any_that_is_said(
    spark: SparkSession,
    bank: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    console, facts = JobConsole("feed"), facts_of(spark, [fact("a", "k", "1", 1)])
    monkeypatch.chdir(bank)
    found = look_for_unhandled(facts, None, console)
    why = "no handler for type 'account.add'; known: bank.add"
    assert found == (Unhandled("account.add", 1, 1, why),)

    monkeypatch.chdir(tmp_path)
    assert look_for_unhandled(facts, None, console) == ()
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("feed: whether handlers take these types and sessions is not known, ")
    assert said.endswith("--app names no app: . is no app: there is no function_app.py in it")
    assert look_for_unhandled(facts, str(bank), console) == found


def test_a_folder_without_an_app_and_a_run_that_is_not_dry_are_refused(
    spark: SparkSession, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert feed.main([*words, f"--app={tmp_path}"]) == 2
    assert "there is no function_app.py in it" in capsys.readouterr().err

    with pytest.raises(SystemExit):
        feed.main([*words[1:], f"--app={ROOT}"])
    assert "--app would have no effect without --dry-run" in capsys.readouterr().err
    with pytest.raises(Exception, match="app would have no effect without dry_run"):
        feed_table(spark.range(1), MAPPING, FeedConfig("bank", app="."))
