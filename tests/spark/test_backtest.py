"""`python -m spark.backtest`: whole sessions through an app's handlers, in tasks, from Parquet."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from shared.backtest.app import load_app
from shared.domain.message import Message, Number
from shared.ports import Document
from spark import backtest
from tests.world import POLICY, World, take

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
    """Twelve accounts of four deposits, in files that hold parts of sessions in any order."""
    world = World(policy=replace(POLICY, keeps_inputs=True), handlers=load_app(app))
    rows: list[dict[str, Any]] = []
    for n in range(SESSIONS):
        session = f"account:{n}"
        for sequence in range(MESSAGES):
            body = json.dumps({"amount": 10 * n + sequence}).encode()
            number = Number("bank", 0, sequence)
            sent = Message(f"{n}-{sequence}", session, "account.deposit", body, number)
            await take(world.east, sent)
        rows += map(row_of, world.entries(session))
    folder = str(tmp_path / "archive")
    for part in (rows[1::2], rows[::2]):
        spark.createDataFrame(part).write.mode("append").parquet(folder)
    return folder


def row_of(entry: Document) -> dict[str, Any]:
    place = {"session": entry["session"], "position": int(entry["id"]), "written": entry["_ts"]}
    return place | {"document": json.dumps(entry)}


@pytest.fixture(autouse=True)
def here(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "open_spark", lambda _master: nullcontext(spark))


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str]:
    status = backtest.main([*map(str, words), "--quiet"])
    return status, "".join(capsys.readouterr())


def test_all_sessions_are_run_and_a_planted_change_is_the_only_difference(
    app: Path, archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(capsys, "--app", app, "--archive", archive)

    assert (status, said.splitlines()) == (
        0,
        ["48 messages of 12 sessions ran again, 0 did not", "no difference"],
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

    entries = [json.loads(line) for line in file.read_text().splitlines()]
    assert len({one["session"] for one in entries}) == 3
    assert len(entries) == 3 * MESSAGES
    assert all(one["_ts"] >= 0 for one in entries)
    assert (status, json.loads(said)["differences"][0]["count"]) == (1, MESSAGES)


def test_what_cannot_be_run_is_refused_by_name(
    app: Path, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "--app", archive, "--archive", archive)[0] == 2
    status, said = run(capsys, "--app", app, "--archive", f"{archive}/none")

    assert status == 2
    assert "none" in said
    assert len(said.splitlines()) == 1
