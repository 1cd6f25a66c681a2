"""What the journal finds of what stands still."""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.journal import Entry, Resolution
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
    begin,
    fault,
    find_signs,
    parked,
    pending_in,
    step,
)
from tests.world import message, require


async def halt(journal: Journal, session: str) -> tuple[Entry, Entry]:
    """The fault that halts a session, and the entry of its resolution, which is not stored yet."""
    halted = fault(None, session)
    await journal.append(halted)
    decided = Resolution("skip", "Ada", "sent by mistake", at=0)
    made_from = EntryInput(halted, message(0, session=session), attempt_of("b"), resolution=decided)
    return halted, next_entry.skip(next_entry.open_entry(made_from), "sent by mistake")


async def test_a_fault_is_found_until_the_entry_of_its_resolution(
    journal: Journal, session: str
) -> None:
    _, resolved = await halt(journal, session)
    (sign,) = await find_signs(journal, session)
    assert (sign.session, sign.position, sign.asks, sign.halts) == (session, 0, True, True)
    assert (sign.reason, sign.regions) == ("it burns", ())

    assert await journal.append(resolved) is WriteResult.CREATED

    assert await find_signs(journal, session) == []
    assert await journal.entry(session, 1) == resolved


async def test_a_resolution_that_comes_too_late_hides_nothing(
    journal: Journal, session: str
) -> None:
    halted, resolved = await halt(journal, session)
    await journal.append(step(halted, session, attempt="theirs"))

    assert await journal.append(resolved) is WriteResult.TAKEN

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
    head, _ = await halt(journal, session)
    for _ in range(4):
        head = step(head, session)
        await journal.append(head)
        pending = PendingOutbox(session, head.outbox, position=head.position)
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
    early = parked(None, message(7, session=session))
    await journal.append(early)
    await journal.append(parked(early, message(5, session=session), "b"))

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
    _, pending = await begin(journal, session, pending_in(session, "east", "west"))
    await journal.acknowledge(pending, Delivered(("east",), {"m": "too large"}))
    (sign,) = await find_signs(journal, session)
    closed = Resolution("close", "Ada", "looked at")
    assert await journal.close(session, 0, sign.version, closed)

    await journal.acknowledge(pending, Delivered(refused={"m": "too large"}))
    assert await find_signs(journal, session) == []

    await journal.acknowledge(pending, Delivered(("west",), {"n": "too large, too"}))
    (sign,) = await find_signs(journal, session)
    assert sign.refused.keys() == {"m", "n"}
    assert require(await journal.entry(session, 0)).closed is None
