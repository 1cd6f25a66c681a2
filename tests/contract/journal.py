"""What every Journal promises. Subclasses bring a `journal` fixture; sessions are made unique."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from shared.domain import next_entry
from shared.domain.handler import HandlerResult
from shared.domain.journal import Attempt, Cursor, Entry, Owner
from shared.domain.message import Message, Number
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX, Delivered, Outbox, address
from shared.domain.producer import BoundNumber, Ledger
from shared.ports import SessionNeed, WriteResult
from shared.storage.journal import Journal
from tests.world import message

REGIONS = ("east", "west")
sessions = (f"contract/{number}?#ü" for number in count())


@pytest.fixture
def session() -> str:
    """A session no other test uses, with characters a document id could not hold."""
    return next(sessions)


def step(head: Entry | None, session: str, attempt: str = "a", outbox: Outbox = NO_OUTBOX) -> Entry:
    """The next entry of a session."""
    position = head.position + 1 if head else 0
    opened = next_entry.open_entry(
        EntryInput(head, message(position, session=session), attempt_of(attempt))
    )
    state = {"amounts": list(range(position + 1)), "note": "Zoë"}
    return next_entry.complete(
        opened, HandlerResult(state, (), {"": {"other": position}}, {}), outbox
    )


def attempt_of(name: str) -> Attempt:
    """A try in the east."""
    return Attempt(name, Owner("east", "east-1"))


def debt(session: str, *regions: str, first: int = 0) -> Outbox:
    """Two messages that some regions wait for."""
    messages: tuple[Message, ...] = (
        message(first, session=session),
        message(first + 1, session=session),
    )
    return address("out", messages, regions)


class JournalContract:
    """The promises, one test each."""

    async def test_a_session_never_begun_has_no_head(self, journal: Journal, session: str) -> None:
        assert await journal.head(session) is None
        assert await journal.entry(session, 0) is None

    async def test_the_head_is_the_newest_entry_whole(self, journal: Journal, session: str) -> None:
        first = step(None, session)
        second = step(first, session, outbox=debt(session, "east", "west"))

        assert await journal.append(first) is WriteResult.CREATED
        assert await journal.append(second) is WriteResult.CREATED

        assert await journal.head(session) == second
        assert await journal.entry(session, 0) == first
        assert second.cursors == {"bank": Cursor(0, 2)}

    async def test_the_tenth_entry_comes_after_the_ninth(
        self, journal: Journal, session: str
    ) -> None:
        head = None
        for _ in range(12):
            head = step(head, session)
            assert await journal.append(head) is WriteResult.CREATED

        assert await journal.head(session) == head

    async def test_a_position_is_created_once(self, journal: Journal, session: str) -> None:
        first = step(None, session, attempt="mine")
        await journal.append(first)

        assert await journal.append(step(None, session, attempt="theirs")) is WriteResult.TAKEN

        assert await journal.entry(session, 0) == first

    async def test_of_many_at_once_one_creates(self, journal: Journal, session: str) -> None:
        first = step(None, session)
        await journal.append(first)
        rivals = [step(first, session, attempt=f"rival-{n}") for n in range(20)]

        outcomes = await asyncio.gather(*(journal.append(rival) for rival in rivals))

        assert outcomes.count(WriteResult.CREATED) == 1
        assert outcomes.count(WriteResult.TAKEN) == 19
        assert await journal.entry(session, 1) == rivals[outcomes.index(WriteResult.CREATED)]

    async def test_an_entry_without_its_predecessor_is_an_orphan(
        self, journal: Journal, session: str
    ) -> None:
        first = step(None, session)
        second = step(first, session)

        assert await journal.append(second) is WriteResult.ORPHANED
        assert await journal.head(session) is None

    async def test_a_parked_message_is_kept_once_until_it_is_taken(
        self, journal: Journal, session: str
    ) -> None:
        early = message(1, session=session)
        parked = next_entry.park(EntryInput(None, early, attempt_of("a")))
        assert await journal.append(parked) is WriteResult.CREATED
        again = next_entry.park(EntryInput(parked, early, attempt_of("b")))
        assert await journal.append(again) is WriteResult.PARKED_BEFORE
        assert await journal.head(session) == replace(parked, message=None)
        assert await journal.parked(session, Number("bank", 0, 1)) == early

        opened = next_entry.open_entry(EntryInput(parked, early, attempt_of("c"), from_parked=True))
        taken = next_entry.complete(opened, HandlerResult({}, (), {}, {}), NO_OUTBOX)
        assert await journal.append(taken) is WriteResult.CREATED

        assert await journal.parked(session, Number("bank", 0, 1)) is None
        twice = replace(taken, position=2, attempt=attempt_of("d"))
        assert await journal.append(twice) is WriteResult.ORPHANED

    async def test_a_run_of_parked_messages_ends_at_the_first_gap_and_is_taken_at_once(
        self, journal: Journal, session: str
    ) -> None:
        early = [message(n, session=session) for n in (1, 2, 3, 5)]
        head: Entry | None = None
        for arriving in early:
            head = next_entry.park(EntryInput(head, arriving, attempt_of("a")))
            assert await journal.append(head) is WriteResult.CREATED

        first = Number("bank", 0, 1)
        assert await journal.parked_run(session, first, 90) == early[:3]
        assert await journal.parked_run(session, first, 2) == early[:2]
        assert await journal.parked_run(session, Number("bank", 0, 4), 90) == []
        folded: Entry | None = None
        for arriving in early[:3]:
            made_from = EntryInput(folded or head, arriving, attempt_of("b"), from_parked=True)
            result = HandlerResult({}, (), {}, {})
            taken = next_entry.complete(next_entry.open_entry(made_from), result, NO_OUTBOX)
            folded = next_entry.fold(folded, taken) if folded else taken
        assert folded is not None
        assert await journal.append(folded) is WriteResult.CREATED

        assert await journal.parked_run(session, first, 90) == []
        assert await journal.parked(session, Number("bank", 0, 5)) == early[3]

    async def test_a_fault_is_kept_whole(self, journal: Journal, session: str) -> None:
        poison = message(0, session=session)
        opened = next_entry.open_entry(EntryInput(None, poison, attempt_of("a")))
        fault = next_entry.fail(opened, reason="it burns", outbox=debt(session, "east"), halts=True)
        await journal.append(fault)

        assert await journal.entry(session, 0) == fault

    async def test_owed_copies_are_kept_until_every_region_took_them(
        self, journal: Journal, session: str
    ) -> None:
        debts = debt(session, "east", "west")
        await journal.add_pending(session, debts)
        await journal.add_pending(session, debts)

        (owing,) = await journal.pending(session, REGIONS)
        assert owing.outbox == debts

        await journal.acknowledge(owing, Delivered(("east",)))
        (left,) = await journal.pending(session, REGIONS)
        assert left.outbox == replace(debts, regions=("west",))

        await journal.acknowledge(owing, Delivered(("west",)))
        await journal.acknowledge(owing, Delivered(("west",)))
        assert await journal.pending(session, REGIONS) == []

    async def test_an_entry_keeps_its_outputs_when_they_are_paid(
        self, journal: Journal, session: str
    ) -> None:
        outbox = debt(session, "east", "west")
        entry = step(None, session, outbox=outbox)
        await journal.append(entry)
        (owing,) = await journal.pending(session, REGIONS)

        await journal.acknowledge(owing, Delivered(("west", "east")))

        assert await journal.pending(session, REGIONS) == []
        paid = replace(entry, outbox=replace(outbox, regions=()))
        assert await journal.entry(session, 0) == paid

    async def test_two_regions_acknowledging_at_once_both_count(
        self, journal: Journal, session: str
    ) -> None:
        await journal.add_pending(session, debt(session, "east", "west"))
        (owing,) = await journal.pending(session, REGIONS)

        await asyncio.gather(
            journal.acknowledge(owing, Delivered(("east",))),
            journal.acknowledge(owing, Delivered(("west",))),
        )

        assert await journal.pending(session, REGIONS) == []

    async def test_sessions_that_owe_are_listed_by_age(
        self, journal: Journal, session: str
    ) -> None:
        await journal.add_pending(session, debt(session, "east"))
        await journal.add_pending(session, debt(session, "east", first=2))

        # The store counts whole seconds: what was stored just now may look a second old, or new.
        async def owing(region: str, older_than_seconds: float) -> list[str]:
            found = await journal.sessions(
                SessionNeed.DELIVERY,
                region=region,
                older_than_seconds=older_than_seconds,
                limit=1_000,
            )
            return list(found)

        old, young = await owing("east", 3_600), await owing("east", -5)

        assert session not in old
        assert young.count(session) == 1
        assert session not in await owing("west", -5)

    async def test_what_another_region_has_is_listed_at_any_age(
        self, journal: Journal, session: str
    ) -> None:
        for name in (session, f"{session}-2"):
            await journal.add_pending(name, debt(name, "east", "west"))
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

    async def test_the_listing_of_sessions_is_limited(self, journal: Journal, session: str) -> None:
        for number in range(5):
            await journal.add_pending(f"{session}-{number}", debt(f"{session}-{number}", "east"))

        assert (
            1
            <= len(
                await journal.sessions(
                    SessionNeed.DELIVERY, region="east", older_than_seconds=-5, limit=3
                )
            )
            <= 3
        )

    async def test_a_ledger_is_replaced_only_at_the_version_read(
        self, journal: Journal, session: str
    ) -> None:
        ledger = Ledger("bank", level=1, next=2, remembered=(BoundNumber("m-1", "digest", 1),))
        assert await journal.ledger(session, "bank") is None
        assert await journal.save_ledger(session, ledger, None)
        assert not await journal.save_ledger(session, ledger, None)

        stored = await journal.ledger(session, "bank")
        assert stored is not None
        assert stored.ledger == ledger

        assert await journal.save_ledger(session, replace(ledger, next=3), stored.version)
        assert not await journal.save_ledger(session, replace(ledger, next=9), stored.version)
        newest = await journal.ledger(session, "bank")
        assert newest is not None
        assert newest.ledger.next == 3
