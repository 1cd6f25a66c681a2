"""A sweep asks one question first. It is answered by every sign that its searches look for."""

from shared.domain import next_entry
from shared.domain.handler import HandlerResult
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX, Delivered, PendingOutbox
from shared.ports import WriteResult
from shared.storage.journal import Journal
from tests.entries import REGIONS, attempt_of, blocked_at, claim, outbox_to, pending_in, step
from tests.world import World, message


async def works(journal: Journal) -> list[bool]:
    return [await journal.has_work(region) for region in REGIONS]


async def test_every_sign_is_work_and_nothing_else_is(journal: Journal) -> None:
    entry = step(None, "quiet")
    assert await journal.append(entry) is WriteResult.CREATED
    assert await works(journal) == [False, False]

    await journal.add_pending("pending", pending_in("pending", "west"))
    assert await works(journal) == [False, True]
    (pending,) = await journal.pending("pending", REGIONS)
    await journal.acknowledge(pending, Delivered(("west",)))
    assert await works(journal) == [False, False]

    outbox = outbox_to("blocked", "audit")
    await journal.append(step(None, "blocked", outbox=outbox))
    pending = PendingOutbox("blocked", outbox, position=0)
    await journal.acknowledge(pending, Delivered(("west",)))
    await journal.acknowledge(pending, blocked_at("audit"))
    assert await works(journal) == [True, False]
    await journal.acknowledge(pending, Delivered(REGIONS, taken={"east": ("audit",)}))
    assert await works(journal) == [False, False]

    await journal.append(claim("claimed"))
    assert await works(journal) == [True, True]
    held = await journal.stored_entry("claimed", 0)
    assert held is not None
    done = next_entry.complete(held.entry, HandlerResult({}, (), {}, {}), NO_OUTBOX)
    await journal.replace(done, held.version)
    assert await works(journal) == [False, False]

    early = message(1, session="gap")
    await journal.append(next_entry.park(EntryInput(None, early, attempt_of("a"))))
    assert await works(journal) == [True, True]


async def test_a_sweep_of_an_idle_region_asks_once() -> None:
    world = World()
    await world.east.consumer.consume(message(0))
    await world.clock.sleep(60)
    world.journal.fault_plan.calls.clear()

    await world.east.recovery.sweep()

    assert dict(world.journal.fault_plan.calls) == {"has_work": 1}
