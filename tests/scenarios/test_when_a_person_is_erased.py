"""Somebody's data is erased from a session: nothing of it is left, and the session goes on."""

import json
from dataclasses import replace

import pytest

from shared.domain.errors import NotAllowed, NotOpen
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.world import World, message

ERASE = ResolutionRequest(ResolutionAction.ERASE, "Ada", "asked to be forgotten")
SECRET = 481_516


def secret(sequence: int, kind: str = "account.bill") -> Message:
    return message(sequence, SECRET, kind=kind)


def kept(world: World) -> str:
    """Everything that the store holds of the session."""
    return json.dumps(list(world.journal.partitions["acc-7"].values()))


async def settle(worker: Services) -> None:
    """Let acknowledgements that wait for a next entry be recorded."""
    await worker.recovery.consumer.dispatcher.acknowledgements.record_session("acc-7")


async def fill(world: World, count: int = 3) -> None:
    for sequence in range(count):
        await world.east.consumer.consume(secret(sequence))
    await settle(world.east)
    assert str(SECRET) in kept(world)


async def test_nothing_of_the_data_is_left_and_copies_are_still_copies() -> None:
    world = World()
    await fill(world, 230)

    entry = await world.east.resolver.resolve("acc-7", ERASE)

    assert kept(world).count(str(SECRET)) == 0
    (left,) = world.entries()
    assert (left["resolution"]["who"], left["resolution"]["action"]) == ("Ada", "erase")
    assert entry.position == 230
    assert await world.west.consumer.consume(secret(7)) == AlreadyDone()
    # A worker that remembers what was erased, and one that does not, go on with the next number.
    for worker, sequence in ((world.east, 230), (world.west, 231), (world.worker("east"), 232)):
        await worker.consumer.consume(message(sequence))
    assert world.amounts() == [231, 232, 233]


async def test_outputs_keep_their_numbers() -> None:
    world = World()
    await fill(world)

    await world.east.resolver.resolve("acc-7", ERASE)
    await world.west.consumer.consume(message(3, kind="account.bill"))

    sent = world.bus.messages("east", "out")
    assert [one.number.sequence for one in sent if one.number] == [0, 1, 2, 3]


async def test_when_the_worker_dies_between_erasing_and_removing_it_can_be_repeated() -> None:
    world = World()
    await fill(world)
    world.journal.fault_plan.plan("compact", CallFault.KILLED_BEFORE)

    with pytest.raises(ProcessKilled):
        await world.east.resolver.resolve("acc-7", ERASE)
    await world.west.resolver.resolve("acc-7", ERASE)

    assert kept(world).count(str(SECRET)) == 0
    assert len(world.entries()) == 1


@pytest.mark.parametrize(
    ("last", "in_the_way"),
    [
        (secret(3, "account.burn"), "halted"),
        (secret(4), "parked"),
        (secret(3), "pending"),
    ],
)
async def test_what_still_waits_is_ended_first(last: Message, in_the_way: str) -> None:
    world = World()
    await fill(world)
    world.bus.unavailable.update({"west"} if in_the_way == "pending" else ())
    await world.east.consumer.consume(last)
    await settle(world.east)
    before = kept(world)

    with pytest.raises(NotOpen, match=in_the_way):
        await world.east.resolver.resolve("acc-7", ERASE)

    assert kept(world) == before


async def test_a_fault_that_was_skipped_is_erased_with_its_body() -> None:
    world = World()
    await fill(world)
    await world.east.consumer.consume(secret(3, "account.burn"))
    skip = replace(ERASE, action=ResolutionAction.SKIP)
    await world.east.resolver.resolve("acc-7", skip)
    await settle(world.east)

    await world.east.resolver.resolve("acc-7", ERASE)

    assert kept(world).count(str(SECRET)) == 0


async def test_the_journal_of_a_saga_is_not_erased() -> None:
    with pytest.raises(NotAllowed):
        await World().east.resolver.resolve("saga:order-1", ERASE)
