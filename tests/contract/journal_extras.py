"""What every Journal promises about claims, markers, staged outputs, searches and compaction."""

import asyncio
from dataclasses import replace

import pytest

from shared.domain import next_entry
from shared.domain.errors import NotStorable, TooLarge
from shared.domain.handler import LEVELS_MAX, HandlerResult
from shared.domain.journal import ARRIVALS, Cursor, Entry, EvictedCursor, Lease, Marker
from shared.domain.message import Message, Number
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import (
    NO_OUTBOX,
    Delivered,
    DestinationBatch,
    Outbox,
    PendingOutbox,
    Staged,
)
from shared.domain.producer import Ledger
from shared.ports import Carried, ParkedMessage, SessionNeed, WriteResult
from shared.storage.documents import MILESTONE_EVERY
from shared.storage.journal import Journal
from tests.contract.journal import REGIONS, attempt_of, debt, step
from tests.contract.journal_signs import find_signs
from tests.world import message


def claim(session: str, *, attempt: str = "a") -> Entry:
    """A claim of a session's first message."""
    opened = next_entry.open_entry(
        EntryInput(None, message(0, session=session), attempt_of(attempt))
    )
    return next_entry.make_claim(opened, Lease(30.0))


def nested(levels: int) -> object:
    """Lists in lists."""
    inner: object = []
    for _ in range(levels - 1):
        inner = [inner]
    return inner


def unnumbered(session: str, name: str) -> Message:
    """A message that its sender did not number."""
    return Message(name, session, "account.add", b'{"amount":1}', time="2026-01-01T00:00:00Z")


def arrival(head: Entry | None, arriving: Message, attempt: str) -> Entry:
    """The entry of an un-numbered message."""
    opened = next_entry.open_entry(EntryInput(head, arriving, attempt_of(attempt)))
    return next_entry.complete(opened, HandlerResult({}, (), {}, {}), NO_OUTBOX)


class JournalExtrasContract:
    """The promises, one test each."""

    async def test_a_claim_is_replaced_only_at_the_version_read(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        held = await journal.stored_entry(session, 0)
        assert held is not None
        assert held.entry == claim(session)
        assert -2 <= held.age_seconds < 60
        done = next_entry.complete(held.entry, HandlerResult({"n": 1}, (), {}, {}), NO_OUTBOX)

        assert await journal.replace(done, held.version) is WriteResult.CREATED
        assert await journal.replace(done, held.version) is WriteResult.TAKEN

        assert await journal.entry(session, 0) == done
        assert await journal.stored_entry(session, 1) is None

    @pytest.mark.parametrize(
        ("state", "parts"),
        [
            ({"deep": nested(LEVELS_MAX - 1)}, 0),
            ({"number": float("nan")}, 0),
            ({"numbers": [1.5, float("-inf")]}, 0),
            ({}, 122),
        ],
        ids=["deep", "not a number", "infinite", "122 operations"],
    )
    async def test_what_the_store_never_takes_is_refused_for_good(
        self, journal: Journal, session: str, state: dict[str, object], parts: int
    ) -> None:
        entry = replace(step(None, session), state=state)
        if parts:
            entry = replace(entry, outbox=debt(session, "east").kept_at(Staged("a", parts)))

        with pytest.raises(NotStorable):
            await journal.append(entry)

        assert await journal.head(session) is None

    async def test_what_is_nested_as_deep_as_can_be_is_kept(
        self, journal: Journal, session: str
    ) -> None:
        entry = replace(step(None, session), state={"deep": nested(LEVELS_MAX - 2)})

        assert await journal.append(entry) is WriteResult.CREATED

        assert await journal.head(session) == entry

    async def test_of_many_who_replace_a_claim_one_succeeds(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        held = await journal.stored_entry(session, 0)
        assert held is not None
        rivals = [
            next_entry.take_over_claim(held.entry, attempt_of(f"rival-{n}")) for n in range(10)
        ]

        outcomes = await asyncio.gather(*(journal.replace(r, held.version) for r in rivals))

        assert outcomes.count(WriteResult.CREATED) == 1
        assert outcomes.count(WriteResult.TAKEN) == 9
        assert await journal.entry(session, 0) == rivals[outcomes.index(WriteResult.CREATED)]

    async def test_a_message_parks_beside_a_claim_or_not_at_all(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        held = await journal.stored_entry(session, 0)
        assert held is not None
        later = message(1, session=session)
        number = Number("bank", 0, 1)
        beside, identity = next_entry.park_beside(held.entry, held.claimed_at, later)
        waiting = ParkedMessage(later, identity)

        assert await journal.replace(beside, "stale", waiting=waiting) is WriteResult.TAKEN
        assert await journal.parked(session, number) is None
        assert await journal.replace(beside, held.version, waiting=waiting) is WriteResult.CREATED
        assert await journal.parked(session, number) == later
        newest = await journal.stored_entry(session, 0)
        assert newest is not None
        assert newest.entry.parked == {"bank": 1}
        again = await journal.replace(beside, newest.version, waiting=waiting)
        assert again is WriteResult.PARKED_BEFORE

    async def test_a_marker_is_created_once_with_its_entry(
        self, journal: Journal, session: str
    ) -> None:
        arriving = unnumbered(session, "m/1?")
        first = arrival(None, arriving, "a")
        assert await journal.append(first) is WriteResult.CREATED

        assert await journal.append(arrival(first, arriving, "b")) is WriteResult.SEEN_BEFORE

        assert await journal.head(session) == first
        assert await journal.marker(session, "m/1?") == Marker(first.identities[0], 0)
        assert first.identities[0].number == Number(ARRIVALS, 0, 0)
        assert await journal.marker(session, "m/2?") is None

    async def test_a_marker_is_that_of_its_source(self, journal: Journal, session: str) -> None:
        ours = arrival(None, unnumbered(session, "m/1?"), "a")
        foreign = arrival(ours, replace(unnumbered(session, "m/1?"), source="//shop"), "b")
        for entry in (ours, foreign):
            assert await journal.append(entry) is WriteResult.CREATED

        assert await journal.head(session) == foreign
        assert await journal.marker(session, "m/1?") == Marker(ours.identities[0], 0)
        assert await journal.marker(session, "m/1?", "//shop") == Marker(foreign.identities[0], 1)
        assert await journal.marker(session, "m/1?", "//bank") is None

    async def test_the_list_of_regions_is_stored_once_and_replaced_by_its_version(
        self, journal: Journal
    ) -> None:
        # The container is shared by other tests, and has one list.
        if await journal.regions() is None:
            assert await journal.save_regions(["east", "west"], None)
        first = await journal.regions()
        assert first is not None

        assert not await journal.save_regions(["north"], None)
        assert await journal.save_regions(["west", "east", "north"], first.version)
        assert not await journal.save_regions(["north"], first.version)

        second = await journal.regions()
        assert second is not None
        assert (second.names, second.version != first.version) == (("west", "east", "north"), True)
        assert await journal.save_regions(first.names, second.version)

    async def test_what_entries_cover_is_read_from_a_position_on(
        self, journal: Journal, session: str
    ) -> None:
        kept: list[Entry] = []
        for _ in range(5):
            kept.append(step(kept[-1] if kept else None, session))
            await journal.append(kept[-1])

        page = await journal.processed(session, 1, 3)
        point = await journal.processed(session, 4, 1)

        assert {position: tuple(covers) for position, covers in page.items()} == {
            position: kept[position].identities for position in (1, 2, 3)
        }
        assert {position: tuple(covers) for position, covers in point.items()} == {
            4: kept[4].identities
        }
        assert (
            await journal.processed(session, 5, 1) == await journal.processed(session, 5, 9) == {}
        )

    async def test_a_claim_covers_nothing_until_it_ends(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        assert (
            await journal.processed(session, 0, 1) == await journal.processed(session, 0, 9) == {}
        )

        held = await journal.stored_entry(session, 0)
        assert held is not None
        done = next_entry.complete(held.entry, HandlerResult({"n": 1}, (), {}, {}), NO_OUTBOX)
        await journal.replace(done, held.version)

        covers = await journal.processed(session, 0, 9)
        assert {position: tuple(found) for position, found in covers.items()} == {
            0: done.identities
        }

    async def test_the_next_entry_carries_the_acknowledgement(
        self, journal: Journal, session: str
    ) -> None:
        first = step(None, session, outbox=debt(session, "east", "west"))
        await journal.append(first)
        carried = Carried(left=())
        second = step(first, session)

        assert await journal.append(second, carried) is WriteResult.CREATED

        assert await journal.pending(session, REGIONS) == []
        paid = replace(first, outbox=replace(first.outbox, regions=()))
        assert await journal.entry(session, 0) == paid

    async def test_an_acknowledgement_is_not_carried_by_an_entry_that_comes_too_late(
        self, journal: Journal, session: str
    ) -> None:
        first = step(None, session, outbox=debt(session, "east", "west"))
        await journal.append(first)
        await journal.append(step(first, session, attempt="theirs"))

        late = await journal.append(step(first, session), Carried(left=()))

        assert late is WriteResult.TAKEN
        assert len(await journal.pending(session, REGIONS)) == 1

    async def test_a_refused_output_is_named_and_its_session_listed(
        self, journal: Journal, session: str
    ) -> None:
        outbox = debt(session, "east", "west")
        await journal.append(step(None, session, outbox=outbox))
        pending = PendingOutbox(session, outbox, position=0)

        await journal.acknowledge(pending, Delivered(("east", "west"), {"m": "too large"}))

        stored = await journal.entry(session, 0)
        assert stored is not None
        assert stored.outbox == replace(outbox, regions=(), refused={"m": "too large"})
        (sign,) = await find_signs(journal, session)
        assert (sign.position, sign.refused) == (0, {"m": "too large"})

    async def test_a_search_leaves_out_the_sessions_it_is_told_to(
        self, journal: Journal, session: str
    ) -> None:
        names = [f"{session}-{number}" for number in range(3)]
        for name in names:
            await journal.add_pending(name, debt(name, "east"))

        found = await journal.sessions(
            SessionNeed.DELIVERY,
            region="east",
            older_than_seconds=-5,
            excluded=[names[0], "nobody's", names[2]],
            limit=1_000,
        )

        assert [name for name in found if name in names] == [names[1]]

    async def test_staged_outputs_are_an_attempts_own_until_it_commits(
        self, journal: Journal, session: str
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
        (owing,) = await journal.pending(session, REGIONS)
        assert owing.outbox == outbox
        assert list(await journal.staged(session, staged)) == mine

        await journal.acknowledge(owing, Delivered(REGIONS))
        assert list(await journal.staged(session, staged)) == []
        assert list(await journal.staged(session, Staged("b", 1))) == theirs

    async def test_an_attempt_whose_stages_are_gone_cannot_commit(
        self, journal: Journal, session: str
    ) -> None:
        outbox = Outbox((), ("east", "west"), Staged("never staged", 1))

        assert await journal.append(step(None, session, outbox=outbox)) is WriteResult.ORPHANED

        assert await journal.head(session) is None

    async def test_what_no_batch_takes_is_too_large_and_leaves_nothing(
        self, journal: Journal, session: str
    ) -> None:
        opened = next_entry.open_entry(
            EntryInput(None, message(0, session=session), attempt_of("a"))
        )
        vast = HandlerResult({"text": "x" * 2_200_000}, (), {}, {})

        with pytest.raises(TooLarge):
            await journal.append(next_entry.complete(opened, vast, NO_OUTBOX))

        assert await journal.head(session) is None

    async def test_sessions_are_found_by_what_needs_somebody(
        self, journal: Journal, session: str
    ) -> None:
        claimed, waiting = f"{session}-claimed", f"{session}-waiting"
        await journal.append(claim(claimed))
        early = message(1, session=waiting)
        await journal.append(next_entry.park(EntryInput(None, early, attempt_of("a"))))

        async def found(sought: SessionNeed, older_than_seconds: float) -> list[str]:
            return list(
                await journal.sessions(sought, older_than_seconds=older_than_seconds, limit=1_000)
            )

        assert (await found(SessionNeed.TAKE_OVER, -5)).count(claimed) == 1
        assert (await found(SessionNeed.DRAINING, -5)).count(waiting) == 1
        assert claimed not in await found(SessionNeed.DRAINING, -5)
        assert claimed not in await found(SessionNeed.TAKE_OVER, 3_600)

    async def test_a_ledger_and_what_it_owes_are_stored_together_or_not_at_all(
        self, journal: Journal, session: str
    ) -> None:
        ledger = Ledger("bank", next=2)
        owed = debt(session, "east", "west")
        version = await journal.save_ledger(session, ledger, None, owed)
        assert version is not None
        (owing,) = await journal.pending(session, REGIONS)
        assert owing.outbox == owed

        other = debt(session, "east", "west", first=2)
        assert await journal.save_ledger(session, ledger, "stale", other) is None
        assert len(await journal.pending(session, REGIONS)) == 1
        later = await journal.save_ledger(session, replace(ledger, next=4), version, other)
        assert later not in (None, version)
        stored = await journal.ledger(session, "bank")
        assert stored is not None
        assert (stored.version, stored.ledger.next) == (later, 4)

    async def test_compaction_removes_what_it_is_told_and_unmarks_the_milestone(
        self, journal: Journal, session: str
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
        assert [(stored.entry.position, stored.is_marked) for stored in kept] == [
            (4, False),
            (5, True),
        ]
        assert await journal.milestone(session, -5) == 5
        assert await journal.head(session) == head
        assert await journal.append(step(None, session, attempt="late")) is WriteResult.TAKEN
        sleeper = replace(oldest[1].entry, position=2, attempt=attempt_of("sleeper"))
        assert await journal.append(sleeper) is WriteResult.ORPHANED

    async def test_an_evicted_cursor_is_kept_with_the_entry_that_no_longer_names_it(
        self, journal: Journal, session: str
    ) -> None:
        group, first = "session:Zoë/3?#", step(None, session)
        evicted = [EvictedCursor(Cursor(1, n), ((3, 2), (n, 5))) for n in (7, 8)]
        await journal.append(first)
        second = replace(step(first, session), has_evicted=True)

        orphan = Carried(evicted={group: evicted[1]})
        assert await journal.append(replace(second, position=2), orphan) is WriteResult.ORPHANED
        assert await journal.cursor(session, group) is None
        assert await journal.append(second, Carried(evicted={group: evicted[0]}))
        taken = replace(second, attempt=attempt_of("late"))
        assert await journal.append(taken, orphan) is WriteResult.TAKEN
        assert await journal.cursor(session, group) == evicted[0]
        assert await journal.head(session) == second
        third = replace(step(second, session), has_evicted=True)
        assert await journal.append(third, orphan) is WriteResult.CREATED

        assert await journal.cursor(session, group) == evicted[1]

    async def test_a_marker_follows_its_message_from_beside_the_journal(
        self, journal: Journal, session: str
    ) -> None:
        arriving = unnumbered(session, "m/3?")
        parked = next_entry.park(EntryInput(None, arriving, attempt_of("a")))
        assert await journal.append(parked) is WriteResult.CREATED
        opened = next_entry.open_entry(
            EntryInput(parked, arriving, attempt_of("b"), from_parked=True)
        )
        taken = next_entry.complete(opened, HandlerResult({}, (), {}, {}, {"said": 1}), NO_OUTBOX)

        assert await journal.append(taken) is WriteResult.CREATED

        assert await journal.marker(session, "m/3?") == Marker(taken.identities[0], 1)
        assert await journal.entry(session, 1) == taken
