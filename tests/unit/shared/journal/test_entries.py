"""What is kept of sessions, of ledgers, and for people; scenarios have what workers make of it."""

from dataclasses import replace

import pytest

from shared.domain import next_entry
from shared.domain.journal import Cursor, Entry, StateChange
from shared.domain.message import Number
from shared.domain.outbox import Delivered, PendingOutbox, address
from shared.domain.producer import BoundNumber, Ledger
from shared.ports import Carried, SessionNeed, WriteResult
from shared.storage.entries import outbox_id
from shared.storage.journal import Journal
from tests.entries import (
    REGIONS,
    attempt_of,
    begin,
    completed,
    delivered,
    hold,
    parked,
    pending_in,
    step,
    taken,
)
from tests.world import message, require


async def test_a_session_never_begun_has_no_head(journal: Journal, session: str) -> None:
    assert await journal.head(session) is None
    assert await journal.entry(session, 0) is None


async def test_a_whole_state_and_a_change_of_it_come_back_as_they_were(
    journal: Journal, session: str
) -> None:
    whole = replace(step(None, session), state_apart=True, change=StateChange(0))
    change = StateChange(1, ({"op": "replace", "path": "/note", "value": None},))
    after = replace(step(whole, session), state_at=0, change=change)

    assert await journal.append(whole) is WriteResult.CREATED
    assert await journal.append(after) is WriteResult.CREATED

    assert await journal.entry(session, 0) == whole
    assert await journal.head(session) == replace(after, state=None)


async def test_the_head_is_the_newest_entry_whole(journal: Journal, session: str) -> None:
    first = step(None, session)
    second = step(first, session, outbox=pending_in(session, "east", "west"))

    assert await journal.append(first) is WriteResult.CREATED
    assert await journal.append(second) is WriteResult.CREATED

    assert await journal.head(session) == second
    assert await journal.entry(session, 0) == first
    assert second.cursors == {"bank": Cursor(0, 2)}


async def test_an_entry_without_its_predecessor_is_an_orphan(
    journal: Journal, session: str
) -> None:
    first = step(None, session)
    second = step(first, session)

    assert await journal.append(second) is WriteResult.ORPHANED
    assert await journal.head(session) is None


async def test_a_parked_message_is_kept_once_until_it_is_taken(
    journal: Journal, session: str
) -> None:
    early = message(1, session=session)
    waiting = parked(None, early)
    assert await journal.append(waiting) is WriteResult.CREATED
    assert await journal.append(parked(waiting, early, "b")) is WriteResult.PARKED_BEFORE
    assert await journal.head(session) == replace(waiting, message=None)
    assert await journal.parked(session, Number("bank", 0, 1)) == early

    drained = taken(waiting, early, "c")
    assert await journal.append(drained) is WriteResult.CREATED

    assert await journal.parked(session, Number("bank", 0, 1)) is None
    twice = replace(drained, position=2, attempt=attempt_of("d"))
    assert await journal.append(twice) is WriteResult.ORPHANED


async def test_a_run_of_parked_messages_ends_at_the_first_gap_and_is_taken_at_once(
    journal: Journal, session: str
) -> None:
    early = [message(n, session=session) for n in (1, 2, 3, 5)]
    head: Entry | None = None
    for arriving in early:
        head = parked(head, arriving)
        assert await journal.append(head) is WriteResult.CREATED

    first = Number("bank", 0, 1)
    assert await journal.parked_run(session, first, 90) == early[:3]
    assert await journal.parked_run(session, first, 2) == early[:2]
    assert await journal.parked_run(session, Number("bank", 0, 4), 90) == []
    folded = taken(head, early[0])
    for arriving in early[1:3]:
        folded = require(next_entry.fold(folded, taken(folded, arriving)))
    assert await journal.append(folded) is WriteResult.CREATED

    assert await journal.parked_run(session, first, 90) == []
    assert await journal.parked(session, Number("bank", 0, 5)) == early[3]


async def test_an_entry_keeps_its_outputs_when_they_are_paid(
    journal: Journal, session: str
) -> None:
    entry, _ = await begin(journal, session, pending_in(session, "east", "west"))
    (pending,) = await journal.pending(session, REGIONS)

    await journal.acknowledge(pending, Delivered(("west", "east")))

    assert await journal.pending(session, REGIONS) == []
    assert await journal.entry(session, 0) == delivered(entry)


async def acknowledge_one(journal: Journal, pending: PendingOutbox, region: str) -> None:
    """Acknowledge what one region took, as its own sweep does."""
    due = replace(pending, outbox=pending.outbox.only([region]))
    await journal.acknowledge(due, Delivered((region,)))


@pytest.mark.parametrize("is_of_entry", [True, False])
async def test_regions_that_read_the_same_outbox_acknowledge_their_own(
    journal: Journal, session: str, is_of_entry: bool
) -> None:
    waiting = pending_in(session, "east", "west")
    if is_of_entry:
        await begin(journal, session, waiting)
    else:
        await journal.add_pending(session, waiting)
    (pending,) = await journal.pending(session, REGIONS)

    await acknowledge_one(journal, pending, "east")
    (left,) = await journal.pending(session, REGIONS)
    assert left.outbox == waiting.only(["west"])
    # What the first one wrote stands, though the second one read before it.
    await acknowledge_one(journal, pending, "west")
    await acknowledge_one(journal, pending, "east")

    assert await journal.pending(session, REGIONS) == []
    document = await journal.container.read(session, outbox_id(pending))
    assert (document is not None) == is_of_entry


@pytest.mark.parametrize("is_read_anew", [True, False])
async def test_what_is_blocked_in_one_region_outlives_the_delivery_to_another(
    journal: Journal, session: str, is_read_anew: bool
) -> None:
    await journal.add_pending(session, pending_in(session, "east", "west"))
    (pending,) = await journal.pending(session, REGIONS)
    no_queue = Delivered(("west",), blocked={"west": {"in": "no such queue"}})
    await journal.acknowledge(replace(pending, outbox=pending.outbox.only(["west"])), no_queue)
    if is_read_anew:
        (pending,) = await journal.pending(session, REGIONS)

    await acknowledge_one(journal, pending, "east")

    assert await journal.pending(session, REGIONS) == []
    (blocked,) = await journal.blocked(session)
    assert blocked.outbox.blocked == no_queue.blocked


async def list_pending(
    journal: Journal, region: str, older_than_seconds: float, of_regions: int = 0
) -> list[str]:
    """The sessions that have something for a region."""
    return [
        *await journal.sessions(
            SessionNeed.DELIVERY,
            region=region,
            older_than_seconds=older_than_seconds,
            of_regions=of_regions,
            limit=1_000,
        )
    ]


async def test_sessions_with_pending_copies_are_listed(journal: Journal, session: str) -> None:
    await journal.add_pending(session, pending_in(session, "east"))
    await journal.add_pending(session, pending_in(session, "east", first=2))

    # The store counts whole seconds: what was stored just now may look a second old, or new.
    assert session not in await list_pending(journal, "east", 3_600)
    assert (await list_pending(journal, "east", -5)).count(session) == 1
    assert session not in await list_pending(journal, "west", -5)


async def test_what_another_region_has_is_listed_at_any_age(journal: Journal, session: str) -> None:
    for name in (session, f"{session}-2"):
        await journal.add_pending(name, pending_in(name, "east", "west"))
    (pending,) = await journal.pending(session, REGIONS)
    await journal.acknowledge(pending, Delivered(("east",)))

    found = await list_pending(journal, "west", 3_600, len(REGIONS))

    assert found.count(session) == 1
    assert f"{session}-2" not in found


async def test_a_claim_covers_nothing_until_it_ends(journal: Journal, session: str) -> None:
    held = await hold(journal, session)
    assert await journal.processed(session, 0, 1) == await journal.processed(session, 0, 9) == {}

    done = completed(held.entry)
    await journal.replace(done, held.version)

    assert tuple((await journal.processed(session, 0, 9))[0]) == done.identities


async def test_an_acknowledgement_is_not_carried_by_an_entry_that_comes_too_late(
    journal: Journal, session: str
) -> None:
    first, _ = await begin(journal, session, pending_in(session, "east", "west"))
    await journal.append(step(first, session, attempt="theirs"))

    late = await journal.append(step(first, session), Carried(left=()))

    assert late is WriteResult.TAKEN
    assert len(await journal.pending(session, REGIONS)) == 1


# What is kept of ledgers and their outboxes.

LEDGER = Ledger("bank", level=1, next=2, began=0, remembered=(BoundNumber("m-1", "digest", 1),))


async def test_a_ledger_that_is_not_stored_sends_nothing(journal: Journal, session: str) -> None:
    await journal.save_ledger(session, LEDGER, None)
    late = address("in", [message(2, session=session)], REGIONS)

    for version in (None, '"never"'):
        assert await journal.save_ledger(session, LEDGER, version, late) is None

    assert await journal.pending(session, REGIONS) == []


async def test_each_version_can_be_replaced_by_one_writer(journal: Journal, session: str) -> None:
    first = await journal.save_ledger(session, LEDGER, None)
    second = await journal.save_ledger(session, replace(LEDGER, next=3), first)

    assert second not in (None, first)
    assert await journal.save_ledger(session, replace(LEDGER, next=9), first) is None
    assert await journal.save_ledger(session, replace(LEDGER, next=4, began=3), second)
    stored = require(await journal.ledger(session, "bank"))
    assert stored.ledger == replace(LEDGER, next=4, began=3)


async def test_the_same_ids_under_new_numbers_are_another_outbox(
    journal: Journal, session: str
) -> None:
    old = message(0, session=session)
    new = replace(message(7, session=session), id=old.id)

    version = await journal.save_ledger(session, LEDGER, None, address("in", [old], REGIONS))
    assert await journal.save_ledger(session, LEDGER, version, address("in", [new], REGIONS))

    found = await journal.pending(session, REGIONS)
    assert {o.outbox.messages for o in found} == {(old,), (new,)}


# What was written lately, and what waits.


async def test_new_entries_name_their_region_the_newest_first(
    journal: Journal, session: str
) -> None:
    await begin(journal, session)

    now = await journal.time()
    found = await journal.recent_entries(now, 60, 1_000)

    region = attempt_of("a").owner.region
    assert any(one.region == region and one.messages == 1 for one in found)
    assert [*found] == sorted(found, key=lambda one: one.age_seconds)
    assert len(await journal.recent_entries(now, 60, 1)) == 1


async def test_what_waits_for_a_region_is_told_by_its_age(journal: Journal, session: str) -> None:
    await journal.add_pending(session, pending_in(session, f"{session}-nowhere"))
    now = await journal.time()

    assert len(await journal.waiting_seconds(now, f"{session}-nowhere", -5, 10)) == 1
    assert [*await journal.waiting_seconds(now, f"{session}-nowhere", 3_600, 10)] == []
    assert [*await journal.waiting_seconds(now, f"{session}-region", -5, 10)] == []
