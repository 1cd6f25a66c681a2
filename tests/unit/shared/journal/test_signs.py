"""What the journal finds of what stands still."""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.journal import Resolution
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import Delivered, PendingOutbox
from shared.domain.standstill import ListPlace, Sign
from shared.ports import SessionNeed, WriteResult
from shared.storage.journal import Journal
from tests.entries import (
    EARLY,
    LATE,
    REGIONS,
    SOUGHT,
    attempt_of,
    fault,
    find_signs,
    pending_in,
    step,
)
from tests.world import message


async def test_a_fault_is_found_until_the_entry_of_its_resolution(
    journal: Journal, session: str
) -> None:
    halted = fault(None, session)
    await journal.append(halted)
    (sign,) = await find_signs(journal, session)
    assert (sign.session, sign.position, sign.asks, sign.halts) == (session, 0, True, True)
    assert (sign.reason, sign.regions) == ("it burns", ())

    decided = Resolution("skip", "Ada", "sent by mistake", at=0)
    made_from = EntryInput(halted, message(0, session=session), attempt_of("b"))
    opened = next_entry.open_entry(replace(made_from, resolution=decided))
    resolved = next_entry.skip(opened, "sent by mistake")
    assert await journal.append(resolved) is WriteResult.CREATED

    assert await find_signs(journal, session) == []
    assert await journal.entry(session, 1) == resolved


async def test_a_resolution_that_comes_too_late_hides_nothing(
    journal: Journal, session: str
) -> None:
    halted = fault(None, session)
    await journal.append(halted)
    made_from = EntryInput(halted, message(0, session=session), attempt_of("b"))
    decided = Resolution("skip", "Ada", "sent by mistake", at=0)
    opened = next_entry.open_entry(replace(made_from, resolution=decided))
    await journal.append(step(halted, session, attempt="theirs"))

    assert await journal.append(next_entry.skip(opened, "")) is WriteResult.TAKEN

    assert [sign.position for sign in await find_signs(journal, session)] == [0]


async def test_pages_hold_every_sign_once_the_newest_first(journal: Journal, session: str) -> None:
    names = [f"{session}-{number}" for number in range(7)]
    for name in names:
        await journal.append(fault(None, name))

    found: list[Sign] = []
    after: ListPlace | None = None
    while True:
        page = await journal.signs(SOUGHT, REGIONS, older_than_seconds=LATE, after=after, limit=3)
        found += page
        if len(page) < 3:
            break
        after = page[-1].place

    mine = [sign for sign in found if sign.session in names]
    assert sorted(sign.session for sign in mine) == names
    assert [sign.place.order for sign in found] == sorted(sign.place.order for sign in found)


async def test_what_is_resolved_between_two_pages_hides_nothing(
    journal: Journal, session: str
) -> None:
    heads = [fault(None, session)]
    await journal.append(heads[0])
    for _ in range(4):
        heads.append(step(heads[-1], session))
        await journal.append(heads[-1])
    for entry in heads[1:]:
        pending = PendingOutbox(session, entry.outbox, position=entry.position)
        await journal.acknowledge(pending, Delivered(refused={"m": "too large"}))

    async def page(after: ListPlace | None) -> Sequence[Sign]:
        return await journal.signs(
            SOUGHT, REGIONS, session=session, older_than_seconds=LATE, after=after, limit=2
        )

    first = await page(None)
    assert len(first) == 2
    for sign in first:
        assert sign.position is not None
        assert await journal.close(session, sign.position, sign.version, None)
    rest = await page(first[-1].place)
    rest = [*rest, *await page(rest[-1].place)]

    assert sorted(sign.position or 0 for sign in [*first, *rest]) == [0, 1, 2, 3, 4]


async def test_regions_and_parked_messages_are_shown_once_they_are_late(
    journal: Journal, session: str
) -> None:
    await journal.add_pending(session, pending_in(session, "west"))
    early = next_entry.park(EntryInput(None, message(7, session=session), attempt_of("a")))
    await journal.append(early)
    later = next_entry.park(EntryInput(early, message(5, session=session), attempt_of("b")))
    await journal.append(later)

    assert await find_signs(journal, session) == []

    shown = await find_signs(journal, session, EARLY)
    assert {(sign.regions, sign.waits) for sign in shown} == {((), True), (("west",), False)}
    assert {sign.position for sign in shown} == {None}
    assert await journal.first_parked(session, "bank") == 5
    assert await journal.first_parked(session, "shop") is None
    only = await journal.signs(
        [SessionNeed.DRAINING], REGIONS, session=session, older_than_seconds=EARLY, limit=9
    )
    assert {sign.waits for sign in only} == {True}


async def test_an_entry_is_closed_only_at_the_version_read(journal: Journal, session: str) -> None:
    entry = replace(step(None, session), alert="somebody look")
    await journal.append(entry)
    (sign,) = await find_signs(journal, session)
    assert sign.alert == "somebody look"
    closed = Resolution("close", "Ada", "looked at")

    assert not await journal.close(session, 0, "stale", closed)
    assert [one.position for one in await find_signs(journal, session)] == [0]
    assert await journal.close(session, 0, sign.version, closed)
    assert not await journal.close(session, 0, sign.version, closed)

    assert await find_signs(journal, session) == []
    assert await journal.entry(session, 0) == replace(entry, closed=closed)


async def test_what_is_refused_after_a_closing_is_found_again(
    journal: Journal, session: str
) -> None:
    entry = step(None, session, outbox=pending_in(session, "east", "west"))
    await journal.append(entry)
    pending = PendingOutbox(session, entry.outbox, position=0)
    await journal.acknowledge(pending, Delivered(("east",), {"m": "too large"}))
    (sign,) = await find_signs(journal, session)
    closed = Resolution("close", "Ada", "looked at")
    assert await journal.close(session, 0, sign.version, closed)

    await journal.acknowledge(pending, Delivered(refused={"m": "too large"}))
    assert await find_signs(journal, session) == []

    await journal.acknowledge(pending, Delivered(("west",), {"n": "too large, too"}))
    (sign,) = await find_signs(journal, session)
    assert sign.refused.keys() == {"m", "n"}
    stored = await journal.entry(session, 0)
    assert stored is not None
    assert stored.closed is None
