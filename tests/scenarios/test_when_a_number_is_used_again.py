"""Another message under a used number or id: refused visibly, wherever the first one is by now."""

import json
from base64 import b64decode
from dataclasses import replace

import pytest

from functions.triggers.receive import receive_message
from shared.domain import wire
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Faulted, Parked, Processed
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.testkit.injected_faults import CallFault
from shared.testkit.regions import consume_together
from tests.business import LEASE_OVER, Outside, dies, payment, processed_and_died, world_of
from tests.deliveries import delivery_of
from tests.world import REGIONS, World, message

BEHIND = 400


def other(of: Message) -> Message:
    """Another message with the same number and id."""
    return replace(of, body=b'{"amount":99}')


async def assert_refused(world: World, worker: Services, first: Message) -> None:
    """Another message under the number is in the error queue, whole; the first stands."""
    entries = len(world.entries(first.session))
    reports = {region: len(world.bus.messages(region, "errors")) for region in REGIONS}

    await receive_message(worker, delivery_of(other(first)))

    for region in REGIONS:
        *_, newest = world.bus.messages(region, "errors")
        assert len(world.bus.messages(region, "errors")) == reports[region] + 1
        report = json.loads(newest.body)
        assert "was used before with other content" in report["reason"]
        assert b64decode(report["body"]) == other(first).body
        assert report["properties"] == wire.to_properties(other(first))
    assert len(world.entries(first.session)) == entries
    assert await worker.consumer.consume(first) == AlreadyDone()


def workers(world: World) -> list[Services]:
    """Those that did the work, and new ones that remember nothing."""
    return [world.east, world.west, world.worker("east"), world.worker("west")]


async def test_at_the_head(world: World) -> None:
    await world.east.consumer.consume(message(0))

    for worker in workers(world):
        await assert_refused(world, worker, message(0))

    assert world.amounts() == [1]


@pytest.mark.parametrize("sequence", [0, 1, 20, 38, 39])
async def test_a_page_ago(world: World, sequence: int) -> None:
    for n in range(40):
        await world.east.consumer.consume(message(n))

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))


@pytest.mark.parametrize("sequence", [0, 3, 177, 399])
async def test_far_in_the_past(sequence: int) -> None:
    world = World()
    for n in range(BEHIND):
        await world.east.consumer.consume(message(n))

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))


@pytest.mark.parametrize("sequence", [0, 1, 17, 49])
async def test_among_the_entries_of_other_groups(sequence: int) -> None:
    world = World()
    busy = 0
    for n in range(50):
        await world.east.consumer.consume(message(n))
        for _ in range(n % 13):
            await world.east.consumer.consume(message(busy, group="busy"))
            busy += 1

    for worker in workers(world):
        await assert_refused(world, worker, message(sequence))
        await assert_refused(world, worker, message(5 * sequence, group="busy"))


async def test_before_a_group_that_has_the_session_ever_since() -> None:
    world = World()
    for n in range(5):
        await world.east.consumer.consume(message(n))
    for n in range(BEHIND):
        await world.east.consumer.consume(message(n, group="busy"))
    calls = world.journal.fault_plan.calls
    for worker in workers(world):
        calls.clear()
        await assert_refused(world, worker, message(2))
        assert calls["processed"] + calls["entry"] + calls["head"] <= 16


async def test_in_a_batch_that_is_one_entry() -> None:
    world = World()
    await consume_together(world.east, [message(n) for n in range(60)])
    await consume_together(world.east, [message(n) for n in range(60, 120)])
    assert len(world.entries()) == 2

    for worker in workers(world):
        for sequence in (0, 1, 59, 60, 119):
            await assert_refused(world, worker, message(sequence))


@pytest.mark.parametrize("behind", [0, 1, 3, 60])
async def test_on_a_fault_that_halts(world: World, behind: int) -> None:
    poison = message(1, kind="account.burn")
    await world.east.consumer.consume(message(0))
    assert isinstance(await world.east.consumer.consume(poison), Faulted)
    for n in range(2, 2 + behind):
        assert await world.east.consumer.consume(message(n)) == Parked()

    for worker in workers(world):
        await assert_refused(world, worker, poison)


@pytest.mark.parametrize(
    "action", [ResolutionAction.RETRY, ResolutionAction.EDIT, ResolutionAction.SKIP]
)
@pytest.mark.parametrize("behind", range(3))
async def test_after_a_resolution(behind: int, action: ResolutionAction) -> None:
    world = world_of(Outside())
    poison = message(1, kind="account.burn")
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(poison)
    for n in range(2, 2 + behind):
        await world.east.consumer.consume(message(n))
    bodies = {
        ResolutionAction.EDIT: b'{"amount":-2}',
        ResolutionAction.SET_STATE: b'{"amounts":[]}',
    }
    body = bodies.get(action)
    await world.west.resolver.resolve("acc-7", ResolutionRequest(action, "Ada", "why", body))

    for worker in workers(world):
        if action is not ResolutionAction.RETRY:
            assert await worker.consumer.consume(poison) == AlreadyDone()
        await assert_refused(world, worker, poison)
        # What the person made of it is not what was sent.
        corrected = replace(poison, body=b'{"amount":-2}')
        assert isinstance(await worker.consumer.consume(corrected), Conflicting)


async def test_while_the_first_is_parked(world: World) -> None:
    assert await world.east.consumer.consume(message(2)) == Parked()

    for worker in workers(world):
        await assert_refused(world, worker, message(2))
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(message(1))

    assert world.amounts() == [1, 2, 3]


async def test_when_the_turn_of_the_parked_one_has_come(world: World) -> None:
    await world.east.consumer.consume(message(1))
    await processed_and_died(world.worker("west"), message(0))
    assert world.amounts() == [1]

    outcome = await world.west.consumer.consume(other(message(1)))

    assert isinstance(outcome, Conflicting)
    assert world.amounts() == [1, 2]


async def test_while_the_first_is_claimed() -> None:
    world = world_of(Outside())
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)

    for worker in workers(world):
        outcome = await worker.consumer.consume(other(payment(0)))
        assert isinstance(outcome, Conflicting)
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(payment(0)), Processed)
    await assert_refused(world, world.west, payment(0))


async def test_while_the_first_is_parked_beside_a_claim() -> None:
    world = world_of(Outside())
    await dies(world, payment(0), "append", CallFault.KILLED_AFTER)
    assert await world.west.consumer.consume(message(1)) == Parked()

    assert isinstance(await world.east.consumer.consume(other(message(1))), Conflicting)
    world.clock.seconds += LEASE_OVER
    await world.west.recovery.sweep()

    assert world.amounts() == [1, 2]


async def test_what_is_compacted_is_a_duplicate_and_changes_nothing() -> None:
    world = World()
    for n in range(250):
        await world.east.consumer.consume(message(n))
        if n == 230:
            world.clock.seconds += world.policy.retention_seconds
    await world.east.consumer.consume(message(250))
    await world.east.compactor.compact()
    assert int(world.entries()[0]["id"]) == 230

    for worker in workers(world):
        assert await worker.consumer.consume(message(7)) == AlreadyDone()
        await assert_refused(world, worker, message(240))
    assert world.amounts() == list(range(1, 252))
