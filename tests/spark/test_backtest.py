"""`python -m spark.backtest`: whole sessions through an app's handlers, in tasks, from Parquet."""

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shared.backtest.__main__ import main as lockstep_backtest
from shared.backtest.app import load_app
from shared.domain.message import Message, Number
from shared.storage.archive import ArchiveRow, make_archive_row
from spark import archive as archive_job
from spark import backtest
from spark.read.archive import ARCHIVE
from tests.sized_outputs import writing
from tests.spark.stopped_journal import stopped_journal
from tests.world import POLICY, World, message, take

MODULE = """
from pydantic import BaseModel

from lockstep import Context, Handlers

handlers = Handlers()

class Account(BaseModel):
    balance: int = 0

class Deposit(BaseModel):
    amount: int

@handlers.register("account.deposit", state=Account, body=Deposit)
def deposit(account: Account, body: Deposit, context: Context) -> Account:
    return Account(balance=account.balance + body.amount)
"""
SESSIONS, MESSAGES = 12, 4


def write_app(folder: Path, text: str) -> Path:
    (folder / "handlers").mkdir(parents=True)
    (folder / "handlers/__init__.py").touch()
    (folder / "function_app.py").touch()
    (folder / "handlers/accounts.py").write_text(text)
    return folder


@pytest.fixture
def app(tmp_path: Path) -> Path:
    return write_app(tmp_path / "bank", MODULE)


@pytest.fixture
async def archive(spark: SparkSession, app: Path, tmp_path: Path) -> str:
    """Twelve accounts of four deposits, in two runs' folders that hold parts of any of them.

    The first account was removed, and is there again with two deposits more.
    """
    handlers = load_app(app)
    rows: list[ArchiveRow] = []
    for life, sessions, messages in ((0, SESSIONS, MESSAGES), (1000, 1, 2)):
        world = World(policy=replace(POLICY, keeps_inputs=True), handlers=handlers)
        world.clock.seconds = life
        for n in range(sessions):
            session = f"account:{n}"
            for sequence in range(messages):
                body = json.dumps({"amount": 10 * n + sequence}).encode()
                number = Number("bank", 0, sequence)
                sent = Message(f"{n}-{sequence}", session, "account.deposit", body, number)
                await take(world.east, sent)
            found = [*world.documents("genesis", session), *world.entries(session)]
            rows += [row for document in found if (row := make_archive_row(document))]
    for run, part in (("run=a", rows[1::2]), ("run=b", rows[::2])):
        timed = [(s, n, datetime.fromtimestamp(at, UTC), text) for s, n, at, text in part]
        spark.createDataFrame(timed, ARCHIVE).write.parquet(str(tmp_path / "archive" / run))
    return str(tmp_path / "archive")


@pytest.fixture(autouse=True)
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    for job in (archive_job, backtest):
        monkeypatch.setattr(job, "open_spark", lambda _master: nullcontext(spark))


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str]:
    status = backtest.main([*map(str, words), "--quiet"])
    return status, "".join(capsys.readouterr())


def test_all_sessions_are_run_and_a_planted_change_is_the_only_difference(
    app: Path, archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(capsys, "--app", app, "--archive", archive)

    assert (status, said.splitlines()) == (
        0,
        ["50 messages of 12 sessions ran again, 0 did not", "no difference"],
    )
    planted = MODULE.replace("+ body.amount", "+ min(body.amount, 112)")
    changed = write_app(tmp_path / "changed", planted)
    status, said = run(capsys, "--app", changed, "--archive", archive, "--json")

    found = json.loads(said)
    assert status == 1
    (only,) = found["differences"]
    assert {name: only[name] for name in ("type", "field", "count", "session", "position")} == {
        "type": "account.deposit",
        "field": "state/balance",
        "count": 1,
        "session": "account:11",
        "position": 3,
    }
    assert (only["was"], only["now"]) == ("446", "445")


@pytest.mark.proof
def test_a_sample_is_written_for_those_without_spark_and_a_change_is_followed(
    app: Path, archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, what_if = tmp_path / "sample.jsonl", tmp_path / "what-if.json"
    what_if.write_text(json.dumps({"session": "account:1", "id": "1-0", "drop": True}))

    words = ["--app", app, "--archive", archive]
    assert run(capsys, *words, "--sample", 3, "--export", file) == (0, "")
    status, said = run(capsys, *words, "--what-if", what_if, "--json")

    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({one["session"] for one in rows}) == 3
    assert lockstep_backtest([str(file), "--app", str(app)]) == 0
    assert "messages of 3 sessions ran again, 0 did not" in capsys.readouterr().out
    assert (status, json.loads(said)["differences"][0]["count"]) == (1, MESSAGES)


@pytest.mark.proof
def test_a_small_archive_is_read_without_spark(
    app: Path, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lockstep_backtest([archive, "--app", str(app)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("50 messages of 12 sessions ran again, 0 did not")


OF_THE_WORLD = """
from lockstep import Handlers
from tests import sized_outputs, world

handlers = Handlers.joined([world.handlers, sized_outputs.handlers])
"""


@pytest.mark.proof
@pytest.mark.wire
def test_the_journal_of_an_account_is_run_like_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app, place = write_app(tmp_path / "world", OF_THE_WORLD), str(tmp_path / "kept")
    with stopped_journal() as stopped:
        for name, value in stopped.settings.items():
            monkeypatch.setenv(name, value)
        kinds = ("add", "bill", "burn", "hint")
        stopped.take(*(message(n, kind=f"account.{kind}") for n, kind in enumerate(kinds)))
        stopped.take(*(writing([900], n, remember=0 if n else 20_000) for n in range(3)))
        status, said = run(capsys, "--app", app)
        stopped.seconds += archive_job.LATE_SECONDS
        assert archive_job.main(["--to", place, "--quiet"]) == 0
        capsys.readouterr()

    assert (status, said.splitlines()[-1]) == (0, "no difference")
    assert said.startswith("6 messages of 2 sessions ran again, 1 did not")
    assert run(capsys, "--app", app, "--archive", place) == (status, said)


@pytest.mark.proof
def test_what_cannot_be_run_is_refused_by_name(
    app: Path, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "--app", archive, "--archive", archive)[0] == 2
    status, said = run(capsys, "--app", app, "--archive", f"{archive}/none")

    assert status == 2
    assert "none" in said
    assert len(said.splitlines()) == 1
