"""A worker stands still for longer than its lease, and wakes when another has done its work."""

import asyncio

import pytest

from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Claimed, Outcome, Processed
from shared.ports import SessionNeed
from shared.storage.documents import STAGED_SECONDS
from shared.testkit.memory import MemoryJournal
from tests.business import (
    LEASE_OVER,
    Gated,
    Outside,
    nothing,
    payment,
    worker_with,
    world_of,
)
from tests.world import REGIONS, World, message

# What the owner was about to call when it stood still; with none it is in its handler.
PAUSES = {
    "in its handler": (),
    "before it reads": ("stored_entry",),
    "before it writes": ("replace",),
}


class Paused:
    """An owner in the east that has called the outside, and then stood still."""

    def __init__(self, arriving: Message, *operations: str) -> None:
        self.outside = Outside(after=self.pause)
        self.world = world_of(self.outside)
        self.gated = Gated(self.world.journal, *operations)
        self.arriving = arriving
        self.operations = operations

    async def pause(self) -> None:
        """Stand still, the first time."""
        self.outside.after = nothing
        self.gated.gate.clear()
        if not self.operations:
            await self.gated.gate.wait()

    async def stands_still(self) -> None:
        """Come as far as the pause."""
        owner = worker_with(self.world, "east", journal=self.gated)
        self.working = asyncio.create_task(owner.consumer.consume(self.arriving))
        await self.gated.waits.wait()

    async def wakes(self) -> Outcome:
        """Go on where it stood, to the end."""
        self.gated.gate.set()
        return await self.working


async def taken_over(arriving: Message, *operations: str) -> Paused:
    """The west has done the work of an owner that still stands."""
    paused = Paused(arriving, *operations)
    await paused.stands_still()
    paused.world.clock.seconds += LEASE_OVER
    assert isinstance(await paused.world.west.consumer.consume(arriving), Processed)
    return paused


async def healthy(*arrivals: Message) -> World:
    """What should have happened."""
    world = world_of(Outside())
    for arriving in arrivals:
        await world.east.consumer.consume(arriving)
    return world


@pytest.mark.parametrize("pause", PAUSES)
async def test_its_result_is_refused_and_its_outputs_are_never_sent(pause: str) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    world = paused.world
    entries = [dict(entry) for entry in world.entries()]
    sent = {region: world.outputs(region) for region in REGIONS}

    assert await paused.wakes() == AlreadyDone()

    assert [dict(entry) for entry in world.entries()] == entries
    assert {region: world.outputs(region) for region in REGIONS} == sent
    assert world.amounts() == [1]
    for region in REGIONS:
        assert world.outputs(region) == (await healthy(payment(0))).outputs(region) != []


@pytest.mark.parametrize("pause", PAUSES)
async def test_both_runs_asked_the_outside_with_the_same_key(pause: str) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    await paused.wakes()

    assert len(paused.outside.asked) == 2
    assert len(paused.outside.keys[1]) == 1


@pytest.mark.parametrize("pause", PAUSES)
async def test_what_it_staged_is_never_sent_and_does_not_stay(pause: str) -> None:
    paused = await taken_over(payment(0, "account.print"), *PAUSES[pause])
    world = paused.world

    assert await paused.wakes() == AlreadyDone()

    quiet = await healthy(payment(0, "account.print"))
    for region in REGIONS:
        assert world.outputs(region) == quiet.outputs(region) != []
    world.clock.seconds += STAGED_SECONDS
    assert staged(world.journal) == []


def staged(journal: MemoryJournal) -> list[str]:
    """The documents with staged outputs that are kept."""
    ids = [d["id"] for d in journal.partitions["acc-7"].values() if d["kind"] == "staged"]
    return [document_id for document_id in ids if journal.store.read("acc-7", document_id)]


@pytest.mark.parametrize("pause", PAUSES)
async def test_the_session_has_gone_on_meanwhile(pause: str) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    bills = [message(n, kind="account.bill") for n in (1, 2)]
    for bill in bills:
        await paused.world.west.consumer.consume(bill)

    assert await paused.wakes() == AlreadyDone()

    quiet = await healthy(payment(0), *bills)
    assert paused.world.amounts() == [1, 2, 3]
    for region in REGIONS:
        assert paused.world.outputs(region) == quiet.outputs(region)


@pytest.mark.parametrize("pause", PAUSES)
async def test_one_that_nobody_took_over_ends_its_own_claim(pause: str) -> None:
    paused = Paused(payment(0), *PAUSES[pause])
    await paused.stands_still()
    paused.world.clock.seconds += 10 * LEASE_OVER

    assert isinstance(await paused.wakes(), Processed)

    assert len(paused.outside.asked) == 1
    assert paused.world.outputs("east") == (await healthy(payment(0))).outputs("east")


async def test_the_one_that_took_over_is_not_disturbed_while_it_still_works() -> None:
    paused = Paused(payment(0))
    await paused.stands_still()
    world = paused.world
    world.clock.seconds += LEASE_OVER
    second = Gated(world.journal)

    async def pause_too() -> None:
        paused.outside.after = nothing
        second.gate.clear()
        await second.gate.wait()

    paused.outside.after = pause_too
    west = worker_with(world, "west", journal=second)
    working = asyncio.create_task(west.consumer.consume(payment(0)))
    await second.waits.wait()
    assert await paused.wakes() == Claimed()
    second.gate.set()

    assert isinstance(await working, Processed)
    assert world.amounts() == [1]
    assert world.entries()[0]["attempt"].startswith("west")
    assert await world.journal.sessions(SessionNeed.TAKE_OVER, limit=1) == []
