"""What every Journal promises about claims, markers, staged outputs, searches and compaction."""

import asyncio
from dataclasses import replace

import pytest

from shared.domain import entries
from shared.domain.batch import Appended, Carried, Waiting
from shared.domain.documents import MILESTONE_EVERY, position_id
from shared.domain.entries import Step
from shared.domain.errors import TooLarge
from shared.domain.journal import ARRIVALS, Entry, Lease, Mark
from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED, Outbox, Parcel, Staged
from shared.domain.producer import Ledger
from shared.domain.running import Result
from shared.ports import Journal, Sought
from tests.contract.journal import REGIONS, attempt_of, debt, step
from tests.world import message


def claim(session: str, *, attempt: str = "a") -> Entry:
    """A claim of a session's first message."""
    opened = entries.opened(Step(None, message(0, session=session), attempt_of(attempt)))
    return entries.claimed(opened, Lease(30.0))


def unnumbered(session: str, name: str) -> Message:
    """A message that its sender did not number."""
    return Message(name, session, "account.add", b'{"amount":1}', time="2026-01-01T00:00:00Z")


def arrival(head: Entry | None, arriving: Message, attempt: str) -> Entry:
    """The entry of an un-numbered message."""
    opened = entries.opened(Step(head, arriving, attempt_of(attempt)))
    return entries.completed(opened, Result({}, (), {}, {}), NOTHING_OWED)


class JournalExtrasContract:
    """The promises, one test each."""

    async def test_a_claim_is_replaced_only_at_the_version_read(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        held = await journal.held(session, 0)
        assert held is not None
        assert held.entry == claim(session)
        assert -2 <= held.age_seconds < 60
        done = entries.completed(held.entry, Result({"n": 1}, (), {}, {}), NOTHING_OWED)

        assert await journal.replace(done, held.version) is Appended.CREATED
        assert await journal.replace(done, held.version) is Appended.TAKEN

        assert await journal.entry(session, 0) == done
        assert await journal.held(session, 1) is None

    async def test_of_many_who_replace_a_claim_one_succeeds(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        held = await journal.held(session, 0)
        assert held is not None
        rivals = [entries.taken_over(held.entry, attempt_of(f"rival-{n}")) for n in range(10)]

        outcomes = await asyncio.gather(*(journal.replace(r, held.version) for r in rivals))

        assert outcomes.count(Appended.CREATED) == 1
        assert outcomes.count(Appended.TAKEN) == 9
        assert await journal.entry(session, 0) == rivals[outcomes.index(Appended.CREATED)]

    async def test_a_message_parks_beside_a_claim_or_not_at_all(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        held = await journal.held(session, 0)
        assert held is not None
        later = message(1, session=session)
        number = Number("bank", 0, 1)
        waiting = Waiting(later, entries.cover_as(later, number))
        beside = entries.parked_beside(held.entry, number)

        assert await journal.replace(beside, "stale", waiting=waiting) is Appended.TAKEN
        assert await journal.parked(session, number) is None
        assert await journal.replace(beside, held.version, waiting=waiting) is Appended.CREATED
        assert await journal.parked(session, number) == later
        newest = await journal.held(session, 0)
        assert newest is not None
        assert newest.entry.parked == {"bank": 1}
        again = await journal.replace(beside, newest.version, waiting=waiting)
        assert again is Appended.PARKED_BEFORE

    async def test_a_marker_is_created_once_with_its_entry(
        self, journal: Journal, session: str
    ) -> None:
        arriving = unnumbered(session, "m/1?")
        first = arrival(None, arriving, "a")
        assert await journal.append(first) is Appended.CREATED

        assert await journal.append(arrival(first, arriving, "b")) is Appended.SEEN_BEFORE

        assert await journal.head(session) == first
        assert await journal.marked(session, "m/1?") == Mark(first.covers[0], 0)
        assert first.covers[0].number == Number(ARRIVALS, 0, 0)
        assert await journal.marked(session, "m/2?") is None

    async def test_what_entries_cover_is_read_from_a_position_on(
        self, journal: Journal, session: str
    ) -> None:
        kept: list[Entry] = []
        for _ in range(5):
            kept.append(step(kept[-1] if kept else None, session))
            await journal.append(kept[-1])

        page = await journal.covers(session, 1, 3)
        point = await journal.covers(session, 4, 1)

        assert {position: tuple(covers) for position, covers in page.items()} == {
            position: kept[position].covers for position in (1, 2, 3)
        }
        assert {position: tuple(covers) for position, covers in point.items()} == {
            4: kept[4].covers
        }
        assert await journal.covers(session, 5, 1) == await journal.covers(session, 5, 9) == {}

    async def test_a_claim_covers_nothing_until_it_ends(
        self, journal: Journal, session: str
    ) -> None:
        await journal.append(claim(session))
        assert await journal.covers(session, 0, 1) == await journal.covers(session, 0, 9) == {}

        held = await journal.held(session, 0)
        assert held is not None
        done = entries.completed(held.entry, Result({"n": 1}, (), {}, {}), NOTHING_OWED)
        await journal.replace(done, held.version)

        covers = await journal.covers(session, 0, 9)
        assert {position: tuple(found) for position, found in covers.items()} == {0: done.covers}

    async def test_the_next_entry_carries_the_acknowledgement(
        self, journal: Journal, session: str
    ) -> None:
        first = step(None, session, outbox=debt(session, "east", "west"))
        await journal.append(first)
        carried = Carried(acknowledges=True)
        second = step(first, session)

        assert await journal.append(second, carried) is Appended.CREATED

        assert await journal.owing_of(session, REGIONS) == []
        paid = replace(first, outbox=replace(first.outbox, regions=()))
        assert await journal.entry(session, 0) == paid

    async def test_an_acknowledgement_is_not_carried_by_an_entry_that_comes_too_late(
        self, journal: Journal, session: str
    ) -> None:
        first = step(None, session, outbox=debt(session, "east", "west"))
        await journal.append(first)
        await journal.append(step(first, session, attempt="theirs"))

        late = await journal.append(step(first, session), Carried(acknowledges=True))

        assert late is Appended.TAKEN
        assert len(await journal.owing_of(session, REGIONS)) == 1

    async def test_a_refused_output_is_named_and_its_session_listed(
        self, journal: Journal, session: str
    ) -> None:
        outbox = debt(session, "east", "west")
        await journal.append(step(None, session, outbox=outbox))
        document_id = position_id(0)

        await journal.acknowledge(session, document_id, ["east", "west"], {"m": "too large"})

        stored = await journal.entry(session, 0)
        assert stored is not None
        assert stored.outbox == replace(outbox, regions=(), refused={"m": "too large"})
        assert session in await journal.sessions(Sought.FAULTED, limit=1_000)
        assert list(await journal.faults_of(session)) == [stored]

    async def test_a_search_leaves_out_the_sessions_it_is_told_to(
        self, journal: Journal, session: str
    ) -> None:
        names = [f"{session}-{number}" for number in range(3)]
        for name in names:
            await journal.owe(name, debt(name, "east"))

        found = await journal.sessions(
            Sought.OWING,
            region="east",
            older_than_seconds=-5,
            but_for=[names[0], "nobody's", names[2]],
            limit=1_000,
        )

        assert [name for name in found if name in names] == [names[1]]

    async def test_staged_outputs_are_an_attempts_own_until_it_commits(
        self, journal: Journal, session: str
    ) -> None:
        mine = [Parcel("out", (message(n, session=session),)) for n in range(2)]
        theirs = [Parcel("out", (message(7, session=session),))]
        await journal.stage(session, "a", mine)
        await journal.stage(session, "b", theirs)
        staged = Staged("a", 2)
        outbox = Outbox((), ("east", "west"), staged)
        assert list(await journal.staged(session, staged)) == mine

        entry = step(None, session, attempt="a", outbox=outbox)
        assert await journal.append(entry) is Appended.CREATED
        (owing,) = await journal.owing_of(session, REGIONS)
        assert owing.outbox == outbox
        assert list(await journal.staged(session, staged)) == mine

        await journal.acknowledge(session, owing.document_id, REGIONS)
        assert list(await journal.staged(session, staged)) == []
        assert list(await journal.staged(session, Staged("b", 1))) == theirs

    async def test_an_attempt_whose_stages_are_gone_cannot_commit(
        self, journal: Journal, session: str
    ) -> None:
        outbox = Outbox((), ("east", "west"), Staged("never staged", 1))

        assert await journal.append(step(None, session, outbox=outbox)) is Appended.ORPHANED

        assert await journal.head(session) is None

    async def test_what_no_batch_takes_is_too_large_and_leaves_nothing(
        self, journal: Journal, session: str
    ) -> None:
        opened = entries.opened(Step(None, message(0, session=session), attempt_of("a")))
        vast = Result({"text": "x" * 2_200_000}, (), {}, {})

        with pytest.raises(TooLarge):
            await journal.append(entries.completed(opened, vast, NOTHING_OWED))

        assert await journal.head(session) is None

    async def test_sessions_are_found_by_what_needs_somebody(
        self, journal: Journal, session: str
    ) -> None:
        claimed, waiting = f"{session}-claimed", f"{session}-waiting"
        await journal.append(claim(claimed))
        early = message(1, session=waiting)
        await journal.append(entries.parked(Step(None, early, attempt_of("a"))))

        async def found(sought: Sought, older_than_seconds: float) -> list[str]:
            return list(
                await journal.sessions(sought, older_than_seconds=older_than_seconds, limit=1_000)
            )

        assert (await found(Sought.CLAIMED, -5)).count(claimed) == 1
        assert (await found(Sought.WAITING, -5)).count(waiting) == 1
        assert claimed not in await found(Sought.WAITING, -5)
        assert claimed not in await found(Sought.CLAIMED, 3_600)

    async def test_a_ledger_and_what_it_owes_are_stored_together_or_not_at_all(
        self, journal: Journal, session: str
    ) -> None:
        ledger = Ledger("bank", next=2)
        owed = debt(session, "east", "west")
        version = await journal.save_ledger(session, ledger, None, owed)
        assert version is not None
        (owing,) = await journal.owing_of(session, REGIONS)
        assert owing.outbox == owed

        other = debt(session, "east", "west", first=2)
        assert await journal.save_ledger(session, ledger, "stale", other) is None
        assert len(await journal.owing_of(session, REGIONS)) == 1
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
        oldest = await journal.compactable(session, 3)
        assert [entry.position for entry in oldest] == [0, 1, 2]

        await journal.compact(session, [0, 1, 2], None)
        await journal.compact(session, [0, 1, 2], None)
        await journal.compact(session, [3], MILESTONE_EVERY)

        assert [e.position for e in await journal.compactable(session, 2)] == [4, 5]
        assert await journal.milestone(session, -5) is None
        assert await journal.head(session) == head
        assert await journal.append(step(None, session, attempt="late")) is Appended.TAKEN
        sleeper = replace(oldest[1], position=2, attempt=attempt_of("sleeper"))
        assert await journal.append(sleeper) is Appended.ORPHANED

    async def test_a_marker_follows_its_message_from_beside_the_journal(
        self, journal: Journal, session: str
    ) -> None:
        arriving = unnumbered(session, "m/3?")
        parked = entries.parked(Step(None, arriving, attempt_of("a")))
        assert await journal.append(parked) is Appended.CREATED
        opened = entries.opened(Step(parked, arriving, attempt_of("b"), from_parked=True))
        taken = entries.completed(opened, Result({}, (), {}, {}, {"said": 1}), NOTHING_OWED)

        assert await journal.append(taken) is Appended.CREATED

        assert await journal.marked(session, "m/3?") == Mark(taken.covers[0], 1)
        assert await journal.entry(session, 1) == taken
