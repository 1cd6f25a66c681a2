"""`GET /api/faults` of the real app on the local host: page by page, at a price, and resolved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from shared.domain.message import Message, Number, derive_id
from testbed.cloud import running_cloud
from tests.e2e.stack import GROUP, SagaStack, Stack, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SESSIONS = 12
# As docs/reference.md says: for a page of four halts a search of eleven records, and four heads.
PAGE_UNITS_MAX = 10 + 11 * 0.2 + 4 * 5
DECISION = {"action": "skip", "who": "Ada", "why": "no flight at all", "at": 0}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[tuple[Stack, SagaStack]]:
    with running_cloud(logs=tmp_path, settings={"LOCKSTEP_SWEEP_SCHEDULE": "0 0 0 1 1 *"}) as cloud:
        yield Stack(cloud), SagaStack(cloud)


def broken(session: str) -> Message:
    """A status that no aircraft has."""
    number = Number(GROUP, 0, 0)
    return Message(derive_id(session), session, "flight.status", b'{"at":1}', number)


def list_all(http: SagaStack, kind: str = "halt") -> list[dict[str, Any]]:
    """Every page, as a caller follows them."""
    found: list[dict[str, Any]] = []
    path = f"faults?kind={kind}&limit=4"
    while True:
        status, document = http.ask("west", path)
        assert status == 200, document
        found += document["standstills"]
        if document["after"] is None:
            return found
        path = f"faults?kind={kind}&limit=4&after={quote(document['after'])}"


async def test_every_halt_is_on_one_page_until_it_is_resolved(
    cloud: tuple[Stack, SagaStack],
) -> None:
    stack, http = cloud
    sessions = [f"N{number:03d}" for number in range(SESSIONS)]
    await stack.send({session: [broken(session)] for session in sessions})
    until(lambda: len(stack.entries()) == SESSIONS, seconds=60, what="halting all sessions")
    # An entry that is written again, as when its copy for the error queue is acknowledged, moves to
    # the first page: who pages meanwhile does not see it.
    until(
        lambda: not any(e.get("owing") for own in stack.entries().values() for e in own),
        seconds=60,
        what="acknowledging every copy",
    )

    listed = list_all(http)

    assert sorted(one["session"] for one in listed) == sessions
    assert all("flight: Field required" in one["cause"] for one in listed), listed
    assert listed[0]["verbs"][2] == {"action": "skip", "at": 0}
    path = listed[0]["resolution"]
    status, answer = http.ask("east", path, "POST", DECISION)
    assert (status, answer["entry"]["resolution"]) == (200, DECISION)
    status, answer = http.ask("west", path, "POST", DECISION)
    assert (status, answer["type"]) == (409, "NotHalted")
    assert sorted(one["session"] for one in list_all(http)) == sorted(
        {*sessions} - {listed[0]["session"]}
    )
    before = units(stack)
    http.ask("west", "faults?limit=4")
    assert 0 < units(stack) - before < PAGE_UNITS_MAX
    for query in ("limit=0", "limit=ten", "after=yesterday", "kind=odd", "page=2"):
        status, answer = http.ask("west", f"faults?{query}")
        assert (status, answer["type"]) == (400, "InvalidMessage")


def units(stack: Stack) -> float:
    """Request units of all queries of the journal so far."""
    rows = stack.cloud.control.read_counters()["cosmos.journal"]["query"]
    return sum(float(row["request_units"]) for row in rows.values())
