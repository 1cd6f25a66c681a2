"""`GET /api/faults` of the real app on the local host: page by page, at a price, and resolved."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import pytest

from local.testing.patience import until
from tests.e2e.stack import Stack, broken, shot

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

SESSIONS = 12
# As docs/reference.md says: for a page of four halts a search of eleven records, and four heads.
PAGE_UNITS_MAX = 10 + 11 * 0.2 + 4 * 5
SETTINGS = {"LOCKSTEP_SWEEP_SCHEDULE": "0 0 0 1 1 *"}
DECISION = {"action": "skip", "who": "Ada", "why": "no flight at all", "at": 0}


def list_all(stack: Stack) -> list[dict[str, Any]]:
    """Every page, as a caller follows them."""
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        path = "faults?kind=halt&limit=4" + (f"&after={quote(after)}" if after else "")
        status, document = stack.ask("west", path)
        assert status == 200, document
        found, after = found + document["standstills"], document["after"]
    return found


def await_acknowledgements(stack: Stack) -> None:
    """Return when no copy for the error queue is pending.

    An entry that is written again, as when its copy is acknowledged, moves to the first page: who
    pages meanwhile does not see it.
    """
    until(lambda: not stack.has_pending(), what="acknowledging every copy")


async def test_every_halt_is_on_one_page_until_it_is_resolved(stack: Stack) -> None:
    sessions = [f"N{number:03d}" for number in range(SESSIONS)]
    await stack.send({session: [broken(session)] for session in sessions})
    until(lambda: len(stack.entries()) == SESSIONS, what="halting all sessions")
    await_acknowledgements(stack)

    listed = list_all(stack)

    assert sorted(one["session"] for one in listed) == sessions
    assert all("flight: Field required" in one["cause"] for one in listed), listed
    assert listed[0]["verbs"][2] == {"action": "skip", "at": 0}
    path = listed[0]["resolution"]
    status, answer = stack.ask("east", path, "POST", DECISION)
    assert (status, answer["entry"]["resolution"]) == (200, DECISION)
    status, answer = stack.ask("west", path, "POST", DECISION)
    assert (status, answer["type"]) == (409, "NotHalted")
    assert sorted(one["session"] for one in list_all(stack)) == sorted(
        {*sessions} - {listed[0]["session"]}
    )
    spent = []
    for _ in range(5):
        before = units(stack)
        stack.ask("west", "faults?limit=4")
        spent.append(units(stack) - before)
    # A sweep may have asked meanwhile.
    assert 0 < min(spent) < PAGE_UNITS_MAX
    for query in ("limit=0", "limit=ten", "after=yesterday", "kind=odd", "page=2"):
        status, answer = stack.ask("west", f"faults?{query}")
        assert (status, answer["type"]) == (400, "InvalidMessage")


def units(stack: Stack) -> float:
    """Request units of all queries of the journal so far."""
    rows = stack.cloud.control.read_counters()["cosmos.journal"]["query"]
    return sum(float(row["request_units"]) for row in rows.values())


@pytest.mark.proof
async def test_when_two_operators_decide_at_once_one_decision_has_an_effect(stack: Stack) -> None:
    games = [f"g{number}" for number in range(SESSIONS)]
    await stack.send({game: [shot(game, 0, -1)] for game in games})
    until(lambda: len(stack.entries()) == SESSIONS, what="halting all sessions")
    await_acknowledgements(stack)
    paths = {one["session"]: one["resolution"] for one in list_all(stack)}

    # Each region's app is asked for another body, so that what won can be told by its effect.
    def decide(region: str, game: str, place: int) -> tuple[int, Any]:
        decision = {**DECISION, "action": "edit", "body": {"position": place}}
        status, answer = stack.ask(region, paths[game], "POST", decision)
        return status, answer

    with ThreadPoolExecutor(2) as people:
        asked = [
            (people.submit(decide, "east", game, 7), people.submit(decide, "west", game, 9))
            for game in games
        ]
        pairs = [(east.result(), west.result()) for east, west in asked]

    for pair in pairs:
        assert sorted(status for status, _ in pair) == [200, 409]
    until(lambda: len(stack.entries()) == 2 * SESSIONS, what="telling the scoreboards")
    until(lambda: stack.left_in_queues() == 0, what="draining")
    entries = stack.entries()
    for game, ((status, _), _) in zip(games, pairs, strict=True):
        own = [e for e in entries[game] if e.get("resolution")]
        (told,) = [c for e in entries[f"{game}/score"] for c in e["identities"]]
        (kept,) = entries[f"{game}/score"]
        assert len(own) == 1
        assert told["sequence"] == 0
        assert kept["state"] == {"hits": 0, "misses": 1}
        assert json.loads(own[0]["message"]["body"])["position"] == (7 if status == 200 else 9)
