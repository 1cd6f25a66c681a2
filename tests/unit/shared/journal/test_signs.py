"""What the journal finds of what stands still."""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain.journal import Resolution
from shared.domain.outbox import Delivered, PendingOutbox
from shared.domain.standstill import ListPlace, Sign
from shared.ports import SessionNeed
from shared.storage.journal import Journal
from tests.entries import REGIONS, begin, fault, pending_in, step
from tests.world import require


async def find_signs(
    journal: Journal, session: str, after: ListPlace | None = None, limit: int = 9
) -> Sequence[Sign]:
    """A page of what a session shows, but for what is only late."""
    sought = (SessionNeed.RESOLUTION, SessionNeed.DRAINING, SessionNeed.DELIVERY)
    return await journal.signs(
        sought, REGIONS, session=session, older_than_seconds=3_600, after=after, limit=limit
    )


async def test_what_is_resolved_between_two_pages_hides_nothing(
    journal: Journal, session: str
) -> None:
    head = fault(None, session)
    await journal.append(head)
    for _ in range(4):
        head = step(head, session)
        await journal.append(head)
        pending = PendingOutbox(session, head.outbox, position=head.position)
        await journal.acknowledge(pending, Delivered(refused={"m": "too large"}))

    first = await find_signs(journal, session, limit=2)
    assert len(first) == 2
    for sign in first:
        assert await journal.close(session, require(sign.position), sign.version, None)
    rest = await find_signs(journal, session, first[-1].place, limit=2)
    rest = [*rest, *await find_signs(journal, session, rest[-1].place, limit=2)]

    assert sorted(sign.position or 0 for sign in [*first, *rest]) == [0, 1, 2, 3, 4]


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
