"""A message ends the process that runs its handler, in both regions: it becomes a fault."""

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

pytestmark = pytest.mark.e2e

APP = Path(__file__).parent / "deadly"
SESSIONS, EACH = 6, 12
GOOD = [f"good-{number}" for number in range(SESSIONS)]


def next_number(session: str, n: int, *, is_deadly: bool = False) -> Message:
    body = json.dumps({"number": n, "is_deadly": is_deadly}).encode()
    return Message(derive_id(session, str(n)), session, "next", body, Number("deaths", 0, n))


def test_it_becomes_a_fault_after_two_workers_of_a_region_and_others_are_done(
    tmp_path: Path,
) -> None:
    app, deaths = tmp_path / "app", tmp_path / "deaths"
    compose_app(APP, app)
    settings = {"DEATHS": str(deaths), "PYTHONPATH": str(ROOT)}
    with running_cloud("--app", str(app), logs=tmp_path / "logs", settings=settings) as cloud:
        stack = Stack(cloud)
        good = [[next_number(session, n) for n in range(EACH)] for session in GOOD]
        bad = [next_number("bad", 0, is_deadly=True), next_number("bad", 1)]
        for region in REGIONS:
            connection = cloud.contract["servicebus"][region]
            send(connection, "lockstep", [*good[:3], bad, *good[3:]])

        until(lambda: stack.left_in_queues() == 0, seconds=240, what="the end of every message")

        entries = stack.entries()
        assert {entry["status"] for session in GOOD for entry in entries[session]} == {"completed"}
        for session in GOOD:
            assert entries[session][-1]["state"] == {"seen": list(range(EACH))}
        fault = next(one for one in entries["bad"] if one["status"] == "faulted")
        assert "the worker that ran its handler ended, in try" in fault["reason"]
        assert fault["message"]["body"].encode() == bad[0].body
        ended = Counter(deaths.read_text("utf-8").split())
        assert ended["east"] <= 2
        assert ended["west"] <= 2
        assert sum(ended.values()) >= 2
