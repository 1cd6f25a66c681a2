"""The command line against the real app on the local host, in both regions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.__main__ import main
from cli.cloud import KEY
from local.testing.patience import until
from proof.testbed.cloud import running_cloud
from shared.domain.message import Message, derive_id
from tests.e2e.stack import REGIONS, Stack, broken, status

pytestmark = pytest.mark.e2e

GOOD = status("N1", 0).body.decode()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One cloud for all: each test has sessions of its own, and the last one loses a region."""
    logs, settings = tmp_path_factory.mktemp("logs"), {"LOCKSTEP_OUTPUT_QUEUE": "nowhere"}
    with (
        running_cloud(logs=logs, settings=settings) as cloud,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("LOCKSTEP_URL", ",".join(cloud.contract["hosts"].values()))
        patch.setenv("LOCKSTEP_KEY", KEY)
        patch.setenv("LOCKSTEP_WHO", "Ada")
        yield Stack(cloud)


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str, ends: int = 0) -> Any:
        """What a command prints with --json, and that it ends so."""
        ended = main([*words, "--json"])
        out, error = capsys.readouterr()
        assert ended == ends, error
        return json.loads(out)

    return run


async def test_sagas_are_listed_and_shown(stack: Stack, ask: Any) -> None:
    started, _ = stack.start_saga("east", "O-1", lines=[{"product": "p", "quantity": 1}])
    assert started == 202

    until(lambda: ask("sagas", "O-1")["state"] == "compensated", what="turning back")

    assert [one["key"] for one in ask("sagas")["sagas"]] == ["O-1"]
    assert {one["name"]: one["outcome"] for one in ask("sagas", "O-1")["steps"]}["submit"] == (
        "undone"
    )
    assert main(["sagas", "none"]) == 1


@pytest.mark.proof
async def test_a_rejected_delivery_is_sent_again_from_the_command_line(
    stack: Stack, ask: Any
) -> None:
    # Without a number and a time it cannot be told from a copy.
    stray = Message(derive_id("stray"), "R/9", "flight.status", status("R/9", 0).body)
    for region in ("east", "west"):
        await stack.put(region, stray)

    def regions() -> list[str]:
        return [name for one in ask("errors", "R/9")["errors"] for name in one["regions"]]

    until(lambda: sorted(regions()) == ["east", "west"], what="its report in both regions")
    (listed,) = ask("errors")["errors"]
    assert (listed["session"], listed["open"], listed["repeatable"]) == ("R/9", True, True)
    for _ in range(2):
        ask("send-again", "R/9", "--why", "it is new", "--yes")

    until(lambda: "R/9" in stack.entries(), what="the effect")
    assert ask("show", "R/9")["state"]["events"] == 1
    (listed,) = ask("errors", "R/9")["errors"]
    assert listed["sent_again"] == {"who": "Ada", "why": "it is new", "done": True}


async def test_an_operator_needs_the_command_line_alone(
    stack: Stack, ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["N1", "N/2", "-"]
    await stack.send({name: [broken(name), *(status(name, n) for n in (1, 2))] for name in names})
    until(lambda: len(ask("faults")["standstills"]) == 3, what="three halts")
    assert [one["session"] for one in ask("sessions", "N")["sessions"]] == ["N/2", "N1"]
    until(
        lambda: {one.get("parked") for one in ask("faults")["standstills"]} == {2}, what="parking"
    )
    listed = ask("faults", "--kind", "halt")["standstills"]
    assert sorted(one["session"] for one in listed) == sorted(names)
    assert all("flight: Field required" in one["cause"] for one in listed)

    # People see the same.
    assert main(["faults"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)
    assert "flight: Field required" in shown

    # It fails again, and the exit status says so. With another body what waited follows.
    again = ask("retry", "N1", "--why", "perhaps", "--yes", ends=1)["outcomes"]
    assert again[0]["outcome"].startswith("entry ")
    assert " faulted again: " in again[0]["outcome"]
    (edited,) = ask("edit", "N1", "--body", GOOD, "--why", "typo", "--yes")["outcomes"]
    assert edited["done"]
    until(lambda: ask("show", "N1")["state"].get("events") == 3, what="draining in order")
    decided = [e["resolution"] for e in stack.entries()["N1"] if e.get("resolution")]
    assert [(one["action"], one["who"], one["why"]) for one in decided] == [
        ("retry", "Ada", "perhaps"),
        ("edit", "Ada", "typo"),
    ]

    # The rest by its cause.
    skipped = ask("skip", "--cause", "flight: Field required", "--why", "no flights", "--yes")
    assert [one["outcomes"]["done"] for one in skipped["decisions"]] == [2]
    until(lambda: ask("faults")["standstills"] == [], what="going on")
    assert {name: ask("show", name)["state"]["events"] for name in names} == {
        "N1": 3,
        "N/2": 2,
        "-": 2,
    }

    # Messages: one, and a file, each with one effect however often it is sent.
    for _ in range(2):
        ask("send", "S/1", "flight.status", GOOD, "--id", "once")
    lines = [
        json.dumps({"session": s, "type": "flight.status", "body": json.loads(status(s, n).body)})
        for n in range(4)
        for s in ("S2", "S3")
    ]
    (tmp_path / "file").write_text("\n".join(lines))
    for _ in range(2):
        assert ask("publish", str(tmp_path / "file")) == {"sent": 8, "of": 8, "failed": []}
    until(
        lambda: [len(stack.entries().get(s, [])) > 0 for s in ("S/1", "S2", "S3")] == [True] * 3,
        what="the effects",
    )
    until(
        lambda: [ask("show", s)["state"].get("events") for s in ("S/1", "S2", "S3")] == [1, 4, 4],
        what="each effect once",
    )

    assert len(ask("sweep")["started"]) == len(REGIONS)

    # What was planted in the settings is found by health and by doctor, in both regions.
    # The look at every queue goes on while health is asked for the first time.
    def missing() -> list[int]:
        main(["health", "--json"])
        return [len(one["missing"]) for one in json.loads(capsys.readouterr().out)["regions"]]

    until(lambda: missing() == [2, 2], what="a look at every queue")
    ask("health", ends=1)
    findings = ask("doctor", ends=1)["findings"]
    assert {one["check"] for one in findings} == {"queues and roles"}
    assert all("'nowhere'" in one["wrong"] for one in findings)
    assert all(one["next"].startswith("create the queue") for one in findings)
    assert main(["--key", "wrong", "faults"]) == 1
    assert "does not take the key" in capsys.readouterr().err

    # A region is lost: the other one is asked.
    stack.cloud.control.act("east", "kill")
    assert ask("show", "N1")["state"]["events"] == 3
    assert [("error" in one) for one in ask("health", ends=3)["regions"]] == [True, False]
