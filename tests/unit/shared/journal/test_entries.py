"""What is kept of sessions: entries, claims, markers, staged outputs, searches and compaction."""

from dataclasses import replace

from shared.domain import next_entry
from shared.domain.journal import ARRIVALS, Cursor, Entry, EvictedCursor, Marker, MessageIdentity
from shared.domain.message import Number
from shared.domain.outbox import (
    Delivered,
    DestinationBatch,
    Outbox,
    Staged,
)
from shared.ports import Carried, ParkedMessage, SessionNeed, WriteResult
from shared.storage.entries import MILESTONE_EVERY
from shared.storage.journal import Journal
from tests.entries import (
    REGIONS,
    arrival,
    attempt_of,
    begin,
    claim,
    completed,
    delivered,
    fault,
    find_signs,
    hold,
    parked,
    pending_in,
    step,
    taken,
    unnumbered,
)
from tests.world import message, require


async def test_a_session_never_begun_has_no_head(journal: Journal, session: str) -> None:
    assert await journal.head(session) is None
    assert await journal.entry(session, 0) is None


async def test_the_head_is_the_newest_entry_whole(journal: Journal, session: str) -> None:
    first = step(None, session)
    second = step(first, session, outbox=pending_in(session, "east", "west"))

    assert await journal.append(first) is WriteResult.CREATED
    assert await journal.append(second) is WriteResult.CREATED

    assert await journal.head(session) == second
    assert await journal.entry(session, 0) == first
    assert second.cursors == {"bank": Cursor(0, 2)}


async def test_a_position_is_created_once(journal: Journal, session: str) -> None:
    first, _ = await begin(journal, session)

    assert await journal.append(step(None, session, attempt="theirs")) is WriteResult.TAKEN

    assert await journal.entry(session, 0) == first


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


async def test_a_fault_is_kept_whole(journal: Journal, session: str) -> None:
    halted = fault(None, session)
    await journal.append(halted)

    assert await journal.entry(session, 0) == halted


async def test_pending_copies_are_kept_until_every_region_took_them(
    journal: Journal, session: str
) -> None:
    copies = pending_in(session, "east", "west")
    await journal.add_pending(session, copies)
    await journal.add_pending(session, copies)

    (pending,) = await journal.pending(session, REGIONS)
    assert pending.outbox == copies

    await journal.acknowledge(pending, Delivered(("east",)))
    (left,) = await journal.pending(session, REGIONS)
    assert left.outbox == replace(copies, regions=("west",))

    await journal.acknowledge(pending, Delivered(("west",)))
    await journal.acknowledge(pending, Delivered(("west",)))
    assert await journal.pending(session, REGIONS) == []


async def test_an_entry_keeps_its_outputs_when_they_are_paid(
    journal: Journal, session: str
) -> None:
    entry, _ = await begin(journal, session, pending_in(session, "east", "west"))
    (pending,) = await journal.pending(session, REGIONS)

    await journal.acknowledge(pending, Delivered(("west", "east")))

    assert await journal.pending(session, REGIONS) == []
    assert await journal.entry(session, 0) == delivered(entry)


async def test_sessions_with_pending_copies_are_listed(journal: Journal, session: str) -> None:
    await journal.add_pending(session, pending_in(session, "east"))
    await journal.add_pending(session, pending_in(session, "east", first=2))

    # The store counts whole seconds: what was stored just now may look a second old, or new.
    async def pending(region: str, older_than_seconds: float) -> list[str]:
        found = await journal.sessions(
            SessionNeed.DELIVERY,
            region=region,
            older_than_seconds=older_than_seconds,
            limit=1_000,
        )
        return list(found)

    old, young = await pending("east", 3_600), await pending("east", -5)

    assert session not in old
    assert young.count(session) == 1
    assert session not in await pending("west", -5)


async def test_what_another_region_has_is_listed_at_any_age(journal: Journal, session: str) -> None:
    for name in (session, f"{session}-2"):
        await journal.add_pending(name, pending_in(name, "east", "west"))
    (pending,) = await journal.pending(session, REGIONS)
    await journal.acknowledge(pending, Delivered(("east",)))

    found = await journal.sessions(
        SessionNeed.DELIVERY,
        region="west",
        older_than_seconds=3_600,
        of_regions=len(REGIONS),
        limit=1_000,
    )

    assert list(found).count(session) == 1
    assert f"{session}-2" not in found


async def test_a_claim_is_replaced_only_at_the_version_read(journal: Journal, session: str) -> None:
    held = await hold(journal, session)
    assert held.entry == claim(session)
    assert -2 <= held.age_seconds < 60
    done = completed(held.entry, n=1)

    assert await journal.replace(done, held.version) is WriteResult.CREATED
    assert await journal.replace(done, held.version) is WriteResult.TAKEN

    assert await journal.entry(session, 0) == done
    assert await journal.stored_entry(session, 1) is None


async def test_a_message_parks_beside_a_claim_or_not_at_all(journal: Journal, session: str) -> None:
    held = await hold(journal, session)
    later = message(1, session=session)
    number = Number("bank", 0, 1)
    beside, identity = next_entry.park_beside(held.entry, held.claimed_at, later)
    waiting = ParkedMessage(later, identity)

    assert await journal.replace(beside, "stale", waiting=waiting) is WriteResult.TAKEN
    assert await journal.parked(session, number) is None
    assert await journal.replace(beside, held.version, waiting=waiting) is WriteResult.CREATED
    assert await journal.parked(session, number) == later
    newest = require(await journal.stored_entry(session, 0))
    assert newest.entry.parked == {"bank": 1}
    again = await journal.replace(beside, newest.version, waiting=waiting)
    assert again is WriteResult.PARKED_BEFORE


async def test_a_marker_is_created_once_with_its_entry(journal: Journal, session: str) -> None:
    arriving = unnumbered(session, "m/1?")
    first = arrival(None, arriving, "a")
    assert await journal.append(first) is WriteResult.CREATED

    assert await journal.append(arrival(first, arriving, "b")) is WriteResult.SEEN_BEFORE

    assert await journal.head(session) == first
    assert await journal.marker(session, "m/1?") == Marker(first.identities[0], 0)
    assert first.identities[0].number == Number(ARRIVALS, 0, 0)
    assert await journal.marker(session, "m/2?") is None


async def test_a_marker_is_that_of_its_source(journal: Journal, session: str) -> None:
    ours = arrival(None, unnumbered(session, "m/1?"), "a")
    foreign = arrival(ours, replace(unnumbered(session, "m/1?"), source="//shop"), "b")
    for entry in (ours, foreign):
        assert await journal.append(entry) is WriteResult.CREATED

    assert await journal.head(session) == foreign
    assert await journal.marker(session, "m/1?") == Marker(ours.identities[0], 0)
    assert await journal.marker(session, "m/1?", "//shop") == Marker(foreign.identities[0], 1)
    assert await journal.marker(session, "m/1?", "//bank") is None


async def test_the_list_of_regions_is_stored_once_and_replaced_by_its_version(
    journal: Journal,
) -> None:
    assert await journal.save_regions(["east", "west"], None)
    first = require(await journal.regions())

    assert not await journal.save_regions(["north"], None)
    assert await journal.save_regions(["west", "east", "north"], first.version)
    assert not await journal.save_regions(["north"], first.version)

    second = require(await journal.regions())
    assert (second.names, second.version != first.version) == (("west", "east", "north"), True)


async def test_what_entries_cover_is_read_from_a_position_on(
    journal: Journal, session: str
) -> None:
    kept: list[Entry] = []
    for _ in range(5):
        kept.append(step(kept[-1] if kept else None, session))
        await journal.append(kept[-1])

    page = {position: kept[position].identities for position in (1, 2, 3)}
    assert await covered(journal, session, 1, 3) == page
    assert await covered(journal, session, 4, 1) == {4: kept[4].identities}
    assert await covered(journal, session, 5, 1) == await covered(journal, session, 5, 9) == {}


async def covered(
    journal: Journal, session: str, first: int, count: int
) -> dict[int, tuple[MessageIdentity, ...]]:
    """The messages of these entries, by position."""
    page = await journal.processed(session, first, count)
    return {position: tuple(identities) for position, identities in page.items()}


async def test_a_claim_covers_nothing_until_it_ends(journal: Journal, session: str) -> None:
    held = await hold(journal, session)
    assert await covered(journal, session, 0, 1) == await covered(journal, session, 0, 9) == {}

    done = completed(held.entry, n=1)
    await journal.replace(done, held.version)

    assert await covered(journal, session, 0, 9) == {0: done.identities}


async def test_the_next_entry_carries_the_acknowledgement(journal: Journal, session: str) -> None:
    first, _ = await begin(journal, session, pending_in(session, "east", "west"))

    assert await journal.append(step(first, session), Carried(left=())) is WriteResult.CREATED

    assert await journal.pending(session, REGIONS) == []
    assert await journal.entry(session, 0) == delivered(first)


async def test_an_acknowledgement_is_not_carried_by_an_entry_that_comes_too_late(
    journal: Journal, session: str
) -> None:
    first, _ = await begin(journal, session, pending_in(session, "east", "west"))
    await journal.append(step(first, session, attempt="theirs"))

    late = await journal.append(step(first, session), Carried(left=()))

    assert late is WriteResult.TAKEN
    assert len(await journal.pending(session, REGIONS)) == 1


async def test_a_refused_output_is_named_and_its_session_listed(
    journal: Journal, session: str
) -> None:
    outbox = pending_in(session, "east", "west")
    _, pending = await begin(journal, session, outbox)

    await journal.acknowledge(pending, Delivered(("east", "west"), {"m": "too large"}))

    stored = require(await journal.entry(session, 0))
    assert stored.outbox == replace(outbox, regions=(), refused={"m": "too large"})
    (sign,) = await find_signs(journal, session)
    assert (sign.position, sign.refused) == (0, {"m": "too large"})


async def test_staged_outputs_are_an_attempts_own_until_it_commits(
    journal: Journal, session: str
) -> None:
    mine = [DestinationBatch("out", (message(n, session=session),)) for n in range(2)]
    theirs = [DestinationBatch("out", (message(7, session=session),))]
    await journal.stage(session, "a", mine)
    await journal.stage(session, "b", theirs)
    staged = Staged("a", 2)
    outbox = Outbox((), ("east", "west"), staged)
    assert list(await journal.staged(session, staged)) == mine

    entry = step(None, session, attempt="a", outbox=outbox)
    assert await journal.append(entry) is WriteResult.CREATED
    (pending,) = await journal.pending(session, REGIONS)
    assert pending.outbox == outbox
    assert list(await journal.staged(session, staged)) == mine

    await journal.acknowledge(pending, Delivered(REGIONS))
    assert list(await journal.staged(session, staged)) == []
    assert list(await journal.staged(session, Staged("b", 1))) == theirs


async def test_an_attempt_whose_stages_are_gone_cannot_commit(
    journal: Journal, session: str
) -> None:
    outbox = Outbox((), ("east", "west"), Staged("never staged", 1))

    assert await journal.append(step(None, session, outbox=outbox)) is WriteResult.ORPHANED

    assert await journal.head(session) is None


async def test_compaction_removes_what_it_is_told_and_unmarks_the_milestone(
    journal: Journal, session: str
) -> None:
    head: Entry | None = None
    for _ in range(MILESTONE_EVERY + 2):
        head = step(head, session)
        await journal.append(head)
    assert await journal.milestone(session, -5) == MILESTONE_EVERY
    assert await journal.milestone(session, 3_600) is None
    oldest = await journal.oldest_entries(session, 3)
    assert [stored.entry.position for stored in oldest] == [0, 1, 2]
    assert [stored.is_marked for stored in oldest] == [False, True, True]
    assert all(abs(stored.read_at - stored.written_at) < 60 for stored in oldest)

    await journal.compact(session, [0, 1, 2], {})
    await journal.compact(session, [0, 1, 2], {})
    marked = dict.fromkeys((4, 8, 16, 32, 64, MILESTONE_EVERY), False)
    await journal.compact(session, [3], marked | {5: True})

    kept = await journal.oldest_entries(session, 2)
    assert [(stored.entry.position, stored.is_marked) for stored in kept] == [(4, False), (5, True)]
    assert await journal.milestone(session, -5) == 5
    assert await journal.head(session) == head
    assert await journal.append(step(None, session, attempt="late")) is WriteResult.TAKEN
    sleeper = replace(oldest[1].entry, position=2, attempt=attempt_of("sleeper"))
    assert await journal.append(sleeper) is WriteResult.ORPHANED


async def test_an_evicted_cursor_is_kept_with_the_entry_that_no_longer_names_it(
    journal: Journal, session: str
) -> None:
    group = "session:Zoë/3?#"
    evicted = [EvictedCursor(Cursor(1, n), ((3, 2), (n, 5))) for n in (7, 8)]
    first, _ = await begin(journal, session)
    second = replace(step(first, session), has_evicted=True)

    orphan = Carried(evicted={group: evicted[1]})
    assert await journal.append(replace(second, position=2), orphan) is WriteResult.ORPHANED
    assert await journal.cursor(session, group) is None
    assert await journal.append(second, Carried(evicted={group: evicted[0]}))
    late = replace(second, attempt=attempt_of("late"))
    assert await journal.append(late, orphan) is WriteResult.TAKEN
    assert await journal.cursor(session, group) == evicted[0]
    assert await journal.head(session) == second
    third = replace(step(second, session), has_evicted=True)
    assert await journal.append(third, orphan) is WriteResult.CREATED

    assert await journal.cursor(session, group) == evicted[1]


async def test_a_marker_follows_its_message_from_beside_the_journal(
    journal: Journal, session: str
) -> None:
    arriving = unnumbered(session, "m/3?")
    waiting = parked(None, arriving)
    assert await journal.append(waiting) is WriteResult.CREATED
    drained = replace(taken(waiting, arriving), answer={"said": 1})

    assert await journal.append(drained) is WriteResult.CREATED

    assert await journal.marker(session, "m/3?") == Marker(drained.identities[0], 1)
    assert await journal.entry(session, 1) == drained
