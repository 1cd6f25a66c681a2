"""Every query finds the same by its SQL, in several physical partitions, as by its function.

The same calls are made on a journal in Cosmos DB and on one in memory. What is compared are the
fields that the SQL finds; documents that one second wrote have no order there.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.domain import next_entry
from shared.domain.handler import HandlerResult
from shared.domain.journal import Cursor, Entry, EvictedCursor, Repetition, Resolution, StateChange
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import (
    NO_OUTBOX,
    Delivered,
    DestinationBatch,
    Outbox,
    PendingOutbox,
    Staged,
)
from shared.domain.producer import BoundNumber, KeptKeys, Ledger
from shared.domain.reports import REJECTED_TYPE
from shared.domain.saga.plan import SagaState
from shared.ports import Carried, Container, Document, Query, SessionNeed
from shared.storage import queries
from shared.storage.documents import parked_ends
from shared.storage.journal import Journal
from shared.storage.sagas import BY_CHANGE, BY_DUE, sagas_query, timed_sagas_query
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_store import VirtualClock
from shared.wiring import Adapters
from tests.cloud import running_cloud, settings_of
from tests.entries import (
    REGIONS,
    arrival,
    attempt_of,
    blocked_at,
    claim,
    fault,
    outbox_to,
    pending_in,
    step,
    unnumbered,
)
from tests.world import message

pytestmark = pytest.mark.wire

LONG = "long/1?#ü"
PLAN = {"parts": [{"steps": [{"name": "s", "do": {"session": "x", "type": "t"}}]}]}
# Before all times, and after all.
NEVER, EVER = -1.0, 4e9
# What the store adds to a document of its own is no part of it.
OWN = "_"


async def fill(journal: Journal) -> None:
    """Make calls of every kind, so that every query has something to find and to pass over."""
    head: Entry | None = None
    for position in range(12):
        outbox = (
            pending_in(LONG, *REGIONS, first=2 * position) if position in (3, 10, 11) else NO_OUTBOX
        )
        head = step(head, LONG, outbox=outbox)
        left = Carried(left=("west",)) if position == 11 else Carried()
        evicted = Carried(evicted={"old": EvictedCursor(Cursor(1, 2), ((1, 0),))})
        await journal.append(head, evicted if position == 5 else left)
    await journal.append(claim("claimed"))
    await journal.append(fault(None, "halted"))
    closed = replace(step(None, "closed"), alert="look")
    await journal.append(closed)
    stored = await journal.stored_entry("closed", 0)
    assert stored is not None
    assert await journal.close("closed", 0, stored.version, Resolution("close", "Ada", "seen"))
    await journal.append(replace(step(None, "asking"), alert="look"))
    for key, state in (
        ("a", {"state": "running"}),
        ("b/1", {"state": "completed"}),
        ("b/2", {"state": "running", "at": "2026-01-02T00:00:00+00:00", "plan": PLAN}),
        ("é", {"state": "running", "at": "2026-01-01T00:00:00+00:00", "plan": PLAN}),
    ):
        await journal.append(replace(step(None, f"saga:{key}"), state=state))
    await journal.append(replace(step(None, "saga:odd"), state={"state": ["running"], "at": 1}))
    early: Entry | None = None
    for sequence, group in ((3, "bank"), (1, "bank"), (2, "bank"), (7, "shop")):
        arriving = message(sequence, session="waiting", group=group)
        early = next_entry.park(EntryInput(early, arriving, attempt_of("a")))
        await journal.append(early)
    for number, names in enumerate((("a",), ("a", "b"))):
        session = f"blocked-{number}"
        outbox = outbox_to(session, *names)
        await journal.append(step(None, session, outbox=outbox))
        await journal.acknowledge(PendingOutbox(session, outbox, position=0), blocked_at(*names))
    refused = outbox_to("refused", "a")
    await journal.append(step(None, "refused", outbox=refused))
    done = Delivered(REGIONS, {"m": "too large"})
    await journal.acknowledge(PendingOutbox("refused", refused, position=0), done)
    await journal.add_pending("pending", pending_in("pending", "west"))
    await journal.add_pending("pending", pending_in("pending", *REGIONS, first=5))
    await journal.append(arrival(None, unnumbered("arrived", "m/1?"), "a"))
    kept = KeptKeys((BoundNumber("key-1", "digest", 2),), seconds=600)
    await journal.save_ledger("sent", Ledger("bank"), None, pending_in("sent", "east"), kept)
    await journal.save_regions(REGIONS, None)
    for name in ("open", "ended"):
        await journal.keep_report(Message(name, "stray", REJECTED_TYPE, b'{"reason":"no time"}'))
    await journal.close_report("stray", "ended")
    await journal.begin_repetition("arrived", "r", Repetition("Ada", "mended", 1.5, "d"))
    batches = [DestinationBatch("out", (message(n, session="staged"),)) for n in range(2)]
    await journal.stage("staged", "a", batches)
    await journal.append(step(None, "staged", outbox=Outbox((), REGIONS, Staged("a", 2))))
    apart = step(None, "large")
    opened = next_entry.open_entry(EntryInput(apart, message(1, session="large"), attempt_of("a")))
    large = next_entry.complete(opened, HandlerResult({"n": 1}, (), {}, {}), NO_OUTBOX)
    await journal.append(apart)
    large = replace(large, state_apart=True, change=StateChange(1))
    await journal.append(large)
    change = StateChange(2, ({"op": "replace", "path": "/n", "value": None},))
    await journal.append(replace(step(large, "large"), state_at=1, change=change))
    await journal.append(next_entry.take_over_claim(claim("other"), attempt_of("b")))


SIGNED = (*queries.PLACED, SessionNeed.RESOLUTION, SessionNeed.DRAINING)


def signs(
    *needs: SessionNeed, late: float = EVER, newest: float = EVER, session: str | None = None
) -> Query:
    return queries.signs_query(needs, REGIONS, session, late, newest, lambda *_: False)


FOUND = {
    "the head": queries.head_query(LONG),
    "an old head": queries.head_query(LONG, may_be_old=True),
    "no head": queries.head_query("sent"),
    "nothing": queries.head_query(queries.NOBODY),
    "the oldest": queries.oldest_query(LONG, 5),
    "the oldest from a position on": queries.oldest_query(LONG, 3, 7),
    "all of a session": queries.oldest_query("large", 5),
    "processed": queries.processed_query(LONG, 3, 4),
    "processed beside a claim": queries.processed_query("claimed", 0, 9),
    "what there is": queries.partition_query("sent"),
    "what there is of a long one": queries.partition_query(LONG),
    "parked": queries.parked_query("waiting", *parked_ends("bank"), limit=9),
    "the first parked": queries.first_parked_query("waiting", "bank"),
    "the first of none": queries.first_parked_query(LONG, "bank"),
    "pending": queries.pending_query(LONG, REGIONS, 9),
    "pending in one region": queries.pending_query(LONG, ["east"], 9),
    "pending, limited": queries.pending_query(LONG, REGIONS, 1),
    "a producer's": queries.pending_query("pending", ["east"], 9),
    "blocked": queries.blocked_query("blocked-1", 9),
    "not blocked": queries.blocked_query(LONG, 9),
    "blocked beside": queries.blocked_beside_query("east", ["east", "east/a"]),
    "blocked at nothing else": queries.blocked_beside_query("east", ["east", "east/a", "east/b"]),
    "blocked nowhere": queries.blocked_beside_query("west", ["west"]),
    "work": replace(queries.work_query("east"), limit=99),
    "work elsewhere": replace(queries.work_query("north"), limit=99),
    **{need.value: queries.sessions_query(need, "east", 99) for need in SessionNeed},
    "delivery, but for some": queries.sessions_query(
        SessionNeed.DELIVERY, "west", 99, excluded=[LONG, "nobody's"]
    ),
    "delivery to the last": queries.sessions_query(SessionNeed.DELIVERY, "west", 99, of_regions=2),
    "unblocking a queue": queries.sessions_query(SessionNeed.UNBLOCKING, "east/b", 99),
    "enough of none": queries.sessions_query(
        SessionNeed.DELIVERY, "east", 99, is_enough=lambda *_: True
    ),
    "signs": signs(*SIGNED),
    "signs of a session": signs(SessionNeed.DELIVERY, session=LONG),
    "signs of one kind": signs(SessionNeed.DRAINING, SessionNeed.RESOLUTION),
    "signs that are late": signs(*SIGNED, late=NEVER),
    "older signs": signs(*SIGNED, newest=NEVER),
    **{f"signs of {need.value}": signs(need) for need in SIGNED},
    "signs that are new": queries.signs_query(
        SIGNED, REGIONS, None, EVER, EVER, lambda *_: False, (NEVER, EVER)
    ),
    "signs that are late only now": queries.signs_query(
        SIGNED, REGIONS, None, EVER, EVER, lambda *_: False, (EVER, NEVER)
    ),
    "open reports": queries.open_reports_query(0.0, None, 9, lambda *_: False),
    "open reports of a session": queries.open_reports_query(0.0, "stray", 9, lambda *_: False),
    "open reports of nobody": queries.open_reports_query(EVER, None, 9, lambda *_: False),
    "times of open reports": queries.open_reports_query(0.0, None, 9),
    "changed": queries.changed_query(None, EVER, 99),
    **{
        f"changed, of {need.value}": queries.changed_query(need, EVER, 99)
        for need in (SessionNeed.RESOLUTION, SessionNeed.TAKE_OVER, SessionNeed.DRAINING)
    },
    "changed before": queries.changed_query(None, NEVER, 99),
    "since ever": queries.since_query(NEVER, 99),
    "since never": queries.since_query(EVER, 99),
    "milestones": queries.milestone_query(LONG),
    "listed": queries.listed_query("", "", 99),
    "listed after": queries.listed_query("blocked-", "blocked-0", 9),
    "listed, limited": queries.listed_query("", "b", 3),
    "sagas": sagas_query(None, "", "", 99),
    "sagas after": sagas_query(None, "b/", "b/1", 9),
    "sagas, limited": sagas_query(None, "", "", 2),
    "sagas of a state": sagas_query(SagaState.RUNNING, "", "", 99),
    "sagas of a state after": sagas_query(SagaState.RUNNING, "", "a", 1),
    "sagas of a state and prefix": sagas_query(SagaState.COMPLETED, "b", "", 9),
    "sagas of no state": sagas_query(SagaState.UNFINISHED, "", "", 9),
    "sagas by change": timed_sagas_query(BY_CHANGE, EVER, 99, lambda *_: False),
    "sagas of before": timed_sagas_query(BY_CHANGE, NEVER, 99, lambda *_: False),
    "sagas by due": timed_sagas_query(BY_DUE, EVER, 99),
    "the newest saga that is due": timed_sagas_query(BY_DUE, 2e9, 1, lambda *_: False),
    "sagas that are not due": timed_sagas_query(BY_DUE, 1e9, 99),
    "naming": queries.naming_query([message(2, session="waiting").id, "m/1?"], None, 9),
    "naming in a session": queries.naming_query(["m/1?", 'a"b'], "arrived", 9),
    "naming nothing": queries.naming_query(["m/1?"], LONG, 9),
    "recent": queries.recent_query(NEVER, 99),
    "too recent": queries.recent_query(EVER, 99),
    "waiting": queries.waiting_query("west", EVER, 99),
    "waiting for long": queries.waiting_query("west", NEVER, 99),
    "every document": Query("SELECT * FROM c", 1_000),
}


def test_every_query_is_asked() -> None:
    asked = {query.sql for query in FOUND.values()}
    constants = {name: sql for name, sql in vars(queries).items() if name.endswith("_QUERY")}

    assert [name for name, sql in constants.items() if sql not in asked] == []
    assert {need for need in SessionNeed if need.value in FOUND} == set(SessionNeed)


async def test_the_store_finds_what_the_function_finds(tmp_path: Path) -> None:
    twin = MemoryJournal(VirtualClock())
    with running_cloud(tmp_path, partitions=3) as cloud:
        adapters = Adapters.of(settings_of(cloud))
        await fill(adapters.journal)
        await fill(twin)
        stored = {n: await said(adapters.journal.container, q) for n, q in FOUND.items()}
        for journal in (twin, adapters.journal):
            assert await remove_one(journal) == []
        await adapters.close()

    expected = {n: await said(twin.container, q, stored[n]) for n, q in FOUND.items()}
    differing = {n: (stored[n], expected[n]) for n in FOUND if stored[n] != expected[n]}
    assert differing == {}
    assert len([name for name, found in stored.items() if not found]) <= len(FOUND) / 3


async def remove_one(journal: Journal) -> list[Document]:
    """Return what is left of a session that ended, was looked after, and is removed."""
    first = step(None, "over")
    await journal.append(first)
    await journal.append(replace(step(first, "over"), is_ended=True))
    await journal.save_ledger("over", Ledger("bank", next=2), None)
    assert await journal.end_all_ledgers("over") == {"bank": 2}
    ended = await journal.ledger("over", "bank")
    assert ended is not None
    assert ended.ledger.is_ended
    known = await journal.stored_entry("over", 1)
    assert known is not None
    await journal.note_quiet(known, 3.5)
    newest = await journal.stored_entry("over", 1)
    assert newest is not None
    assert (newest.entry.quiet, newest.is_marked) == (3.5, True)
    assert await journal.session_age("over") is not None
    # What was written since it was read is not removed.
    assert not await journal.remove_session(known)
    assert await journal.remove_session(newest)
    assert await journal.session_age("over") is None
    return await journal.container.find(queries.partition_query("over"))


async def said(
    container: Container, query: Query, alike: list[Document] | None = None
) -> list[Document]:
    """Return what a query finds, or as much of it as what is `alike` says."""
    found: list[Document] = [without_own(document) for document in await container.find(query)]
    if alike is not None:
        fields = {name for one in alike for name in one}
        found = [{name: one[name] for name in one if name in fields} for one in found]
        if queries.SIGN_FIELDS in query.sql:
            found = [part_of_sign(one) for one in found]
    if query.order in ("_ts", ""):
        found.sort(key=lambda one: json.dumps(one, sort_keys=True))
    return found


def without_own(document: Mapping[str, Any]) -> Document:
    return {name: value for name, value in document.items() if not name.startswith(OWN)}


def part_of_sign(document: Document) -> Document:
    """Return a document with what a sign says of its outbox."""
    outbox = document.get("outbox", {})
    kept = {name: outbox[name] for name in ("refused", "blocked", "decided") if name in outbox}
    return document | {"outbox": kept}
