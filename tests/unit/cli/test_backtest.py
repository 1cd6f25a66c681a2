"""`lockstep backtest`: the gate of a team's CI, over an app in a folder and a file of entries."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from shared.backtest.__main__ import main as run_backtest
from shared.backtest.app import AppUnusable, load_app
from shared.backtest.bisect import BisectRefused, name_first_commit
from shared.backtest.kept_rows import parse_beginning, sample_sessions
from shared.domain.message import Message, Number
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.world import POLICY, World, take

KEEPING = replace(POLICY, keeps_inputs=True)
MODULE = """
from pydantic import BaseModel

from lockstep import Context, Handled, Handlers, Output

handlers = Handlers()

class Account(BaseModel):
    balance: int = 0

class Deposit(BaseModel):
    amount: int

@handlers.register("account.deposit", state=Account, body=Deposit)
def deposit(account: Account, body: Deposit, context: Context) -> Handled[Account]:
    after = Account(balance=account.balance + body.amount)
    return Handled(after, (Output("account.balance", after),))
"""
FEE = MODULE.replace("+ body.amount", "+ body.amount - 2 * (body.amount > 100)")
CONNECT = """
def connect_handlers(settings):
    connected = Handlers()
    register = connected.register(f"{settings.region}.deposit", state=Account, body=Deposit)
    register(deposit)
    return connected
"""
BALANCE, SENT = "state/balance", "output account.balance/balance"


@pytest.fixture
def app(tmp_path: Path) -> Path:
    folder = tmp_path / "bank"
    (folder / "handlers").mkdir(parents=True)
    for name in ("function_app.py", "handlers/__init__.py"):
        (folder / name).touch()
    (folder / "handlers/accounts.py").write_text(MODULE)
    return folder


def deposit(session: str, sequence: int, amount: int) -> Message:
    body = json.dumps({"amount": amount}).encode()
    number = Number("bank", 0, sequence)
    return Message(f"{session}-{sequence}", session, "account.deposit", body, number)


@pytest.fixture
async def kept(app: Path, tmp_path: Path) -> Path:
    """Three accounts, of which two had a deposit over 100; the second one had two."""
    world = World(policy=KEEPING, handlers=load_app(app))
    for session, amounts in (("a", (50,)), ("b", (101, 3, 200)), ("c", (7, 300))):
        await take(world.east, *(deposit(session, n, one) for n, one in enumerate(amounts)))
    file = tmp_path / "kept.jsonl"
    entries = [
        {**entry, "_ts": entry["_ts"] + EPOCH_SECONDS}
        for session in "abc"
        for entry in world.entries(session)
    ]
    file.write_text("\n".join(map(json.dumps, entries)))
    return file


def budget(file: Path, *rows: Mapping[str, Any]) -> str:
    file.write_text(json.dumps(rows))
    return str(file)


def expected(field: str, count: int) -> dict[str, Any]:
    return {"type": "account.deposit", "field": field, "count": count}


def run(capsys: pytest.CaptureFixture[str], *words: Any) -> tuple[int, str]:
    """The command's process without a process of its own, which would take a second."""
    try:
        status = run_backtest(list(map(str, words)))
    except SystemExit as misuse:
        status = int(misuse.code or 0)
    out, err = capsys.readouterr()
    return status, out or err


@pytest.fixture(autouse=True)
def imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is imported of an app is forgotten afterwards."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "handlers"]:
        del sys.modules[name]


def test_the_same_handlers_differ_in_nothing(
    app: Path, kept: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = ["--since=2026", "--until=2100", "--sample=3"]
    status = main(["backtest", str(kept), "--app", str(app), *options])

    said, why = capfd.readouterr()
    assert why == ""
    assert (status, said.splitlines()) == (
        0,
        ["6 messages of 3 sessions ran again, 0 did not", "no difference"],
    )


def test_a_change_is_found_and_a_budget_for_it_is_exceeded_kept_or_in_vain(
    app: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # What an app prints does not stand in the report.
    (app / "handlers/accounts.py").write_text(f"{FEE}\nprint('hello')\n")
    file = tmp_path / "budget.json"

    status, said = run(capsys, kept, "--app", app, "--json")
    first, second = json.loads(said)["differences"]
    assert status == 1
    assert [first["field"], second["field"]] == [SENT, BALANCE]
    assert (second["count"], second["session"], second["position"]) == (3, "b", 0)
    assert (second["was"], second["now"]) == ("101", "99")

    fitting = budget(file, expected(BALANCE, 3), expected(SENT, 3))
    status, said = run(capsys, kept, "--app", app, "--expect", fitting)
    assert status == 0
    assert said.splitlines()[-1].startswith("all differences are expected")

    tight = budget(file, expected(BALANCE, 2), expected("state/owner", 1))
    status, said = run(capsys, kept, "--app", app, "--expect", tight)
    assert status == 1
    assert said.splitlines()[-3:] == [
        f"not expected: account.deposit: {SENT}, in 3 entries",
        f"more than expected: account.deposit: {BALANCE}, in 3 entries and not 2",
        "not found: account.deposit: state/owner: remove it from the budget",
    ]


def test_a_sample_has_the_same_sessions_each_time(
    app: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(capsys, kept, "--app", app, "--sample", 2)

    assert (status, "of 2 sessions" in said) == (0, True)
    names = [f"s{n}" for n in range(100)]
    assert sample_sessions(names, 10) == sample_sessions(reversed(names), 10)
    assert {*sample_sessions(names, 10)} < {*sample_sessions(names, 11)}


def test_a_message_that_said_something_else_is_followed(
    app: Path, kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "what-if.json"
    file.write_text(json.dumps({"session": "b", "id": "b-1", "body": {"amount": 4}}))

    status, said = run(capsys, kept, "--app", app, "--what-if", file, "--json")

    found = json.loads(said)
    assert (status, found["sessions"]) == (1, 1)
    assert {
        (one["field"], one["count"], one["was"], one["now"]) for one in found["differences"]
    } == {
        (BALANCE, 2, "104", "105"),
        (SENT, 2, "104", "105"),
    }


def git(folder: Path, *words: str) -> str:
    who = {
        f"GIT_{role}_{what}": "ada@example.com"
        for role in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    command = ["git", "-C", str(folder), *words]
    environment = {**os.environ, **who}
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout.strip()


def commit(app: Path, text: str, subject: str) -> str:
    (app / "handlers/accounts.py").write_text(text)
    git(app, "add", ".")
    git(app, "commit", "--quiet", "--allow-empty", "--message", subject)
    return git(app, "rev-parse", "--short", "HEAD")


@pytest.fixture
def commits(app: Path) -> Sequence[str]:
    """The commits of the app: with no difference, none, a difference, and with it, too."""
    git(app.parent, "init", "--quiet")
    texts = {"Begin": MODULE, "Comment": f"{MODULE}# 1", "Take a fee": FEE, "Rest": f"{FEE}# 2"}
    return [commit(app, text, subject) for subject, text in texts.items()]


@pytest.mark.proof
def test_the_first_commit_with_a_difference_is_named(
    app: Path, kept: Path, commits: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    status, said = run(
        capsys, kept, "--app", app, "--bisect", f"{commits[0]}..{commits[3]}", "--since=2026"
    )

    assert status == 1
    assert said.startswith(f"first commit with a difference: {commits[2]} ")
    assert said.endswith(": Take a fee\n")
    status, said = run(capsys, kept, "--app", app, "--bisect", f"{commits[0]}..{commits[1]}")
    assert (status, "has a difference" in said) == (0, True)


def test_commits_are_looked_at_in_a_folder_of_their_own(app: Path, commits: Sequence[str]) -> None:
    seen = []

    def takes_fee(folder: Path) -> bool:
        seen.append(folder)
        return "100" in (folder / "handlers/accounts.py").read_text()

    first = name_first_commit(app, f"{commits[0]}..{commits[3]}", takes_fee)

    assert first is not None
    assert first.startswith(commits[2])
    # Nothing is left of it, and the app is as it was.
    assert not any(folder.exists() for folder in seen)
    assert git(app, "worktree", "list").count("\n") == 0
    assert git(app, "status", "--porcelain", ".") == ""
    assert name_first_commit(app, f"{commits[0]}..{commits[1]}", takes_fee) is None
    with pytest.raises(BisectRefused, match=f"{commits[2]} .* has a difference already"):
        name_first_commit(app, f"{commits[2]}..{commits[3]}", takes_fee)
    with pytest.raises(BisectRefused, match="there is no commit in"):
        name_first_commit(app, f"{commits[0]}..{commits[0]}", takes_fee)


@pytest.mark.parametrize(
    ("words", "text", "why"),
    [
        ((), "{}", "row 1 is no entry of a journal"),
        ((), "no JSON", "is no file of JSON lines"),
        ((), "", "nothing could be run again"),
        (("--since", "today"), "", "a year, a month, a day or a time in ISO 8601"),
        (("--sample", "0"), "", "a whole number from 1"),
        (("--app", "nowhere"), "", "nowhere is no app"),
        (("--expect", "{file}"), '{"type": 1}', "a type, a field and a count from 1"),
        (("--what-if", "{file}"), '{"id": "m"}', "one object with a session"),
        (("--bisect", "A"), "", "two commits as A..B"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else None,
)
def test_what_cannot_be_run_is_refused_by_name(
    words: Sequence[str],
    text: str,
    why: str,
    app: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "given.jsonl"
    file.write_text(text)
    given = [word.format(file=file) for word in words]

    status, said = run(capsys, file, *([] if "--app" in words else ["--app", app]), *given)

    assert status == 2
    assert why in " ".join(said.split())


def test_an_entry_without_its_messages_is_refused_with_what_to_do(
    app: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    kept.write_text("\n".join(json.dumps({**row, "inputs": []}) for row in rows))

    status, said = run(capsys, kept, "--app", app)

    assert status == 2
    assert "LOCKSTEP_KEEP_INPUTS=yes" in said
    assert "6 did not: account.deposit has a message that was not kept" in said


def test_an_app_that_cannot_be_imported_says_why(
    app: Path, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (app / "handlers/accounts.py").write_text("raise SystemExit('no price list')")

    status, said = run(capsys, kept, "--app", app)

    assert (status, "SystemExit: no price list" in said) == (2, True)


def test_handlers_get_the_settings_of_a_job_which_has_no_region_and_no_connection(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decorator = '@handlers.register("account.deposit", state=Account, body=Deposit)\n'
    (app / "handlers/accounts.py").write_text(MODULE.replace(decorator, "") + CONNECT)
    (app / "handlers/__init__.py").unlink()
    monkeypatch.setenv("LOCKSTEP_REGIONS", "north,south")

    assert [*load_app(app).by_type] == ["north.deposit"]
    monkeypatch.setenv("LOCKSTEP_PREFERENCE", "somewhere")
    with pytest.raises(AppUnusable, match="LOCKSTEP_PREFERENCE must be first or spread"):
        load_app(app)


def test_a_month_or_a_day_begins_at_midnight_in_utc() -> None:
    assert parse_beginning("2026") == parse_beginning("2026-01-01T00:00:00Z")
    march = parse_beginning("2026-03-01T01:00+01:00")
    assert parse_beginning("2026-03") == parse_beginning("2026-03-01") == march
