"""Messages have no number: they are known by their markers, and keep the order of arrival."""

from dataclasses import replace
from datetime import timedelta

import pytest

from shared.domain.errors import InvalidMessage
from shared.domain.resolution import ResolutionAction
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Conflicting,
    Expired,
    Faulted,
    Parked,
    Processed,
)
from shared.testkit.injected_faults import CallFault, FaultPlan
from tests.business import (
    BEGAN,
    LEASE_OVER,
    BusinessWorld,
    Outside,
    WrongClock,
    business,
    dies,
    plain,
    swept,
    worker_with,
)
from tests.crashes import assert_the_same_whatever_fails, redelivered
from tests.world import IMPATIENT, POLICY, REGIONS, SKIP, World, message, take

# When a message has no number, it is known by its marker for a time, in the order of arrival.

WINDOW = POLICY.window_seconds
HOUR = 3600.0
OTHER = replace(plain(0), body=b'{"amount":99}')
BURN, PAY = plain(0, "account.burn"), plain(0, "account.pay")


@pytest.mark.parametrize("later", range(3))
@pytest.mark.parametrize("first", REGIONS)
async def test_a_copy_is_known_by_its_marker(world: World, first: str, later: int) -> None:
    for sequence in range(later + 1):
        await world.worker(first).consumer.consume(plain(sequence))
    outputs = world.outputs("east")

    for region in (*REGIONS, *REGIONS):
        for worker in (world.worker(region), getattr(world, region)):
            assert await worker.consumer.consume(plain(0)) == AlreadyDone()

    assert world.amounts() == list(range(1, later + 2))
    assert world.outputs("east") == world.outputs("west") == outputs


async def test_a_new_one_is_not_looked_up_before_it_is_tried(world: World) -> None:
    await world.east.consumer.consume(plain(0))
    world.journal.fault_plan.calls.clear()

    await world.east.consumer.consume(plain(1, "account.add"))

    assert dict(world.journal.fault_plan.calls) == {"append": 1}


@pytest.mark.parametrize("later", range(3))
@pytest.mark.parametrize("region", REGIONS)
async def test_other_content_under_its_id_is_refused(world: World, region: str, later: int) -> None:
    await take(world.east, *(plain(sequence) for sequence in range(later + 1)))

    outcome = await world.worker(region).consumer.consume(OTHER)

    assert isinstance(outcome, Conflicting)
    assert "its id was used before with other content" in outcome.reason
    assert world.amounts() == list(range(1, later + 2))


async def test_it_does_not_take_a_number_from_those_that_have_one(world: World) -> None:
    outcomes = await take(world.east, plain(7), message(0), plain(8), message(1))

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert world.amounts() == [8, 1, 9, 2]


@pytest.mark.parametrize("region", REGIONS)
async def test_one_older_than_the_window_is_refused_by_name(world: World, region: str) -> None:
    await world.east.consumer.consume(plain(0))
    world.clock.seconds += WINDOW + 60

    outcome = await world.worker(region).consumer.consume(plain(0))

    assert isinstance(outcome, Expired)
    assert outcome.reason == "un-numbered and 604860 s old, over the 604800 s that are remembered"
    assert world.amounts() == [1]


@pytest.mark.parametrize("sender_off_by", [-HOUR, 0, HOUR])
@pytest.mark.parametrize("worker_off_by", [-HOUR, 0, HOUR])
async def test_the_marker_outlives_the_window_whatever_the_clocks_say(
    world: World, sender_off_by: float, worker_off_by: float
) -> None:
    bill = plain(0, sent_after=sender_off_by)
    await world.east.consumer.consume(bill)
    await world.east.consumer.consume(plain(1))
    # The last second in which a worker whose clock is so far behind takes it.
    world.clock.seconds += WINDOW + sender_off_by + worker_off_by - 1
    slow = worker_with(world, "west", clock=WrongClock(world.clock, -worker_off_by))

    assert await slow.consumer.consume(bill) == AlreadyDone()

    assert world.amounts() == [1, 2]


async def test_the_marker_does_not_stay_for_ever(world: World) -> None:
    await world.east.consumer.consume(plain(0))

    world.clock.seconds += WINDOW + 3 * HOUR

    ids = [d["id"] for d in world.journal.partitions["acc-7"].values() if d["kind"] == "marker"]
    assert len(ids) == 1
    assert world.journal.store.read("acc-7", ids[0]) is None


@pytest.mark.parametrize(
    ("time", "reason"),
    [
        (None, "neither a number nor a time"),
        ("yesterday", "no ISO 8601 time"),
        ("", "no ISO 8601 time"),
        ((BEGAN + timedelta(hours=2)).isoformat(), "comes from 7200 s in the future"),
        ("9999-12-31T23:59:59-23:59", "in the future"),
    ],
)
async def test_one_that_does_not_say_when_it_was_sent_is_refused_by_name(
    world: World, time: str | None, reason: str
) -> None:
    with pytest.raises(InvalidMessage, match=reason):
        await world.east.consumer.consume(replace(plain(0), time=time))

    assert world.entries() == []


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+23:59", "1970-01-01", "20200101T000000Z"])
async def test_one_from_long_ago_is_refused_by_name(world: World, time: str) -> None:
    assert isinstance(await world.east.consumer.consume(replace(plain(0), time=time)), Expired)


async def test_any_call_can_go_wrong_in_any_way() -> None:
    outside = Outside()
    burn = plain(2, "account.burn")
    arrivals = [plain(0), plain(1, "account.pay"), plain(0), burn, plain(3), burn, plain(3)]

    async def work(world: World) -> None:
        await redelivered(world, *arrivals)
        world.journal.fault_plan, world.bus.fault_plan = FaultPlan(), FaultPlan()
        await swept(world)
        await world.east.resolver.resolve("acc-7", SKIP)
        await swept(world)

    async def also(_: World) -> None:
        assert len(outside.keys[2]) == 1

    await assert_the_same_whatever_fails(work, business(outside), [1, 2, 4], 3, also=also)


# When messages without numbers wait behind a halt or a claim, they keep the order of arrival.


async def halted(*behind: int) -> World:
    """A session that stops at its first message, and others that wait behind it."""
    world = World()
    assert isinstance(await world.east.consumer.consume(BURN), Faulted)
    for n, sequence in enumerate(behind):
        assert await world.worker(REGIONS[n % 2]).consumer.consume(plain(sequence)) == Parked()
    return world


async def test_those_behind_a_halt_are_drained_in_the_order_of_their_arrival() -> None:
    world = await halted(5, 3, 9, 1, 7)

    await world.west.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [6, 4, 10, 2, 8]
    assert "parked" not in world.entries()[-1]
    assert world.outputs("east") == world.outputs("west")


async def test_copies_of_those_behind_a_halt_are_done_already_and_others_refused() -> None:
    world = await halted(1, 2)

    for region in (*REGIONS, *REGIONS):
        worker = world.worker(region)
        assert set(await take(worker, BURN, plain(1))) == {AlreadyDone()}
        others = await take(worker, replace(plain(1), body=b'{"amount":99}'), OTHER)
        assert {type(outcome) for outcome in others} == {Conflicting}
    await world.west.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [2, 3]


async def test_one_behind_a_halt_is_not_too_old_when_its_turn_comes() -> None:
    world = await halted(1)
    world.clock.seconds += 3 * WINDOW

    await world.west.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [2]


async def test_a_late_copy_of_the_original_is_a_duplicate_after_an_edit() -> None:
    world = await halted()
    edit = replace(SKIP, action=ResolutionAction.EDIT, body=b'{"amount":-1}')
    await world.east.resolver.resolve("acc-7", edit)

    for region in REGIONS:
        assert await world.worker(region).consumer.consume(BURN) == AlreadyDone()
    assert isinstance(await world.east.consumer.consume(OTHER), Conflicting)

    assert world.amounts() == [-1]


async def test_those_behind_a_claim_are_drained_in_the_order_of_their_arrival() -> None:
    world, arrivals = BusinessWorld(), [plain(n) for n in (5, 3, 9)]
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)
    hurried = world.worker("west", IMPATIENT)
    assert await take(hurried, *arrivals) == [Parked()] * 3
    assert await take(world.east, *arrivals) == [AlreadyDone()] * 3
    world.clock.seconds += LEASE_OVER

    await world.west.recovery.sweep()

    assert world.amounts() == [1, 6, 4, 10]
    assert world.outputs("east") == world.outputs("west")
    assert len(world.outside.asked) == 1


async def test_other_content_under_the_id_of_a_claimed_one_is_refused_visibly() -> None:
    world = BusinessWorld()
    await dies(world, PAY, "append", CallFault.KILLED_AFTER)

    for region in REGIONS:
        assert isinstance(await world.worker(region).consumer.consume(OTHER), Conflicting)
