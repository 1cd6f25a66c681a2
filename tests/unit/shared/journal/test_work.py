"""A sweep asks one question first. It is answered by every sign that its searches look for."""

from shared.domain.outbox import Delivered
from shared.storage.journal import Journal
from tests.entries import REGIONS, begin, blocked_at, completed, hold, outbox_to, parked, pending_in
from tests.world import World, message


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
