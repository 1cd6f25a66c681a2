"""What the journal finds: what needs attention, what a queue does not take, and whether to look."""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain.journal import Resolution
from shared.domain.outbox import Delivered, PendingOutbox
from shared.domain.standstill import ListPlace, Sign
from shared.ports import SessionNeed
from shared.storage.journal import Journal
from tests.entries import (
    REGIONS,
    begin,
    blocked_at,
    completed,
    delivered,
    fault,
    hold,
    outbox_to,
    parked,
    pending_in,
    step,
)
from tests.world import World, message, require


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


# What is kept of outputs that a queue does not take.


async def test_a_refusal_that_is_recorded_late_blocks_nothing_that_others_have_sent(
    journal: Journal, session: str
) -> None:
    _, pending = await begin(journal, session, outbox_to(session, "audit"))

    await journal.acknowledge(pending, Delivered(("east",)))
    await journal.acknowledge(pending, blocked_at("audit"))

    assert await journal.blocked(session) == []
    (west,) = await journal.pending(session, ["west"])
    assert west.outbox.regions == ("west",)


async def test_it_is_found_by_its_region_and_queue_until_it_took_everything(
    journal: Journal, session: str
) -> None:
    queue = f"audit-{session}"
    entry, pending = await begin(journal, session, outbox_to(session, queue))

    async def found(region: str, name: str) -> list[str]:
        need = SessionNeed.UNBLOCKING
        return [
            *await journal.sessions(need, region=region, queue=name, older_than_seconds=-5, limit=9)
        ]

    await journal.acknowledge(pending, blocked_at(queue))
    assert await found("east", queue) == [session]
    assert await found("west", queue) == await found("east", "another") == []

    await journal.acknowledge(pending, Delivered(REGIONS, taken={"east": (queue,)}))
    assert await found("east", queue) == []
    assert await journal.blocked(session) == []
    assert await journal.entry(session, 0) == delivered(entry)


async def test_blocked_queues_are_named_once_each(journal: Journal, session: str) -> None:
    region = f"region-{session}"
    # Whichever is the oldest, another has one of its queues and one that it has not.
    for number, queues in enumerate((("a", "b"), ("b", "c"), ("c", "a"))):
        one = f"{session}-{number}"
        outbox = replace(outbox_to(one, *queues), regions=(region,))
        _, pending = await begin(journal, one, outbox)
        await journal.acknowledge(pending, blocked_at(*queues, region=region))

    assert sorted(await journal.blocked_queues(region)) == ["a", "b", "c"]
    assert await journal.blocked_queues("nowhere") == []


async def test_a_producers_blocked_copies_are_kept_until_they_are_taken(
    journal: Journal, session: str
) -> None:
    outbox = pending_in(session, "east")
    await journal.add_pending(session, outbox)
    (pending,) = await journal.pending(session, REGIONS)

    await journal.acknowledge(pending, blocked_at("out"))
    (blocked,) = await journal.blocked(session)
    assert (blocked.position, blocked.outbox.messages) == (None, outbox.messages)

    await journal.acknowledge(blocked, Delivered(("east",), taken={"east": ("out",)}))
    assert await journal.blocked(session) == []


# A sweep asks one question first, answered by every sign that its searches look for.


async def works(journal: Journal) -> list[bool]:
    return [await journal.has_work(region) for region in REGIONS]


async def test_every_sign_is_work_and_nothing_else_is(journal: Journal) -> None:
    await begin(journal, "quiet")
    assert await works(journal) == [False, False]

    await journal.add_pending("pending", pending_in("pending", "west"))
    assert await works(journal) == [False, True]
    (pending,) = await journal.pending("pending", REGIONS)
    await journal.acknowledge(pending, Delivered(("west",)))
    assert await works(journal) == [False, False]

    _, pending = await begin(journal, "blocked", outbox_to("blocked", "audit"))
    await journal.acknowledge(pending, Delivered(("west",)))
    await journal.acknowledge(pending, blocked_at("audit"))
    assert await works(journal) == [True, False]
    await journal.acknowledge(pending, Delivered(REGIONS, taken={"east": ("audit",)}))
    assert await works(journal) == [False, False]

    held = await hold(journal, "claimed")
    assert await works(journal) == [True, True]
    await journal.replace(completed(held.entry), held.version)
    assert await works(journal) == [False, False]

    await journal.append(parked(None, message(1, session="gap")))
    assert await works(journal) == [True, True]


async def test_a_sweep_of_an_idle_region_asks_once() -> None:
    world = World()
    await world.east.consumer.consume(message(0))
    await world.clock.sleep(60)
    world.journal.fault_plan.calls.clear()

    await world.east.recovery.sweep()

    assert dict(world.journal.fault_plan.calls) == {"has_work": 1}
