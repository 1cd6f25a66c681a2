"""Handlers do their worst in both regions: each message is a fault, and others are done."""

import json
from collections import Counter
from pathlib import Path

import pytest

from local.testing.patience import until
from proof.bench.load import send
from proof.testbed.apps import compose_app
from proof.testbed.cloud import ROOT, running_cloud
from shared.domain.message import Message, Number, derive_id
from tests.e2e.stack import REGIONS, Stack
from tests.sizes import IS_PROOF
from tests.user_code import BY_NAME, ENDS, WORKER_ENDED

pytestmark = pytest.mark.e2e

APP = Path(__file__).parent / "deadly"
SESSIONS, EACH = 6, 12
GOOD = [f"good-{number}" for number in range(SESSIONS)]
# By type of message: a pure handler, and a coroutine that calls the outside.
WORST = [
    ("next", "sys.exit"),
    ("next", "a native panic"),
    ("next", "an exception that cannot say its text"),
    ("call", "a keyboard interrupt"),
    ("call", "a cancellation that nobody asked for"),
    ("call", "a loop without end"),
    ("call", "a call that blocks for ever"),
    ("next", "an exit that nobody can catch"),
]
MORE = [
    ("next", "a recursion without end"),
    ("next", "a loop without end"),
    ("next", "a crash of native code"),
    ("call", "a signal that kills"),
    ("call", "a call in C that holds the lock"),
]
HANDLER_SECONDS = "5"


def next_number(session: str, n: int, kind: str = "next", way: str | None = None) -> Message:
    body = json.dumps({"number": n, "way": way}).encode()
    return Message(derive_id(session, str(n)), session, kind, body, Number("worst", 0, n))


def test_each_becomes_a_fault_with_its_reason_and_others_are_done(tmp_path: Path) -> None:
    app, runs = tmp_path / "app", tmp_path / "runs"
    compose_app(APP, app)
    settings = {"RUNS": str(runs), "PYTHONPATH": str(ROOT)}
    settings["LOCKSTEP_HANDLER_SECONDS"] = HANDLER_SECONDS
    worst = {f"bad-{n}": one for n, one in enumerate(WORST + MORE if IS_PROOF else WORST)}
    with running_cloud("--app", str(app), logs=tmp_path / "logs", settings=settings) as cloud:
        stack = Stack(cloud)
        good = [[next_number(session, n) for n in range(EACH)] for session in GOOD]
        bad = [
            [next_number(session, 0, kind, way), next_number(session, 1)]
            for session, (kind, way) in worst.items()
        ]
        for region in REGIONS:
            connection = cloud.contract["servicebus"][region]
            send(connection, "lockstep", [*good[:3], *bad, *good[3:]])

        def has_ended() -> bool:
            # What ended its worker may be settled: a claim holds it, and is taken over in time.
            ended = {
                session
                for session, own in stack.entries().items()
                if any(entry["status"] == "faulted" for entry in own)
            }
            return stack.left_in_queues() == 0 and ended == worst.keys()

        until(has_ended, seconds=480, what="the end of every message")

        entries = stack.entries()
        for session in GOOD:
            assert {entry["status"] for entry in entries[session]} <= {"completed", "parked"}
            assert entries[session][-1]["state"] == {"seen": list(range(EACH))}
        for session, (_, way) in worst.items():
            # Whatever follows waits for a person.
            assert "completed" not in {entry["status"] for entry in entries[session]}
            (fault,) = (entry for entry in entries[session] if entry["status"] == "faulted")
            # What takes long may run in the workers that the others end.
            assert BY_NAME[way].word in fault["reason"] or WORKER_ENDED in fault["reason"]
            assert json.loads(fault["message"]["body"])["way"] == way
        ran = Counter(runs.read_text("utf-8").splitlines())
        for kind, way in worst.values():
            if BY_NAME[way] in ENDS and kind == "next":
                assert max(ran[f"{region} {way}"] for region in REGIONS) <= 2
                assert sum(ran[f"{region} {way}"] for region in REGIONS) >= 2
