"""A message comes before its turn: it waits, is parked, and is never applied early."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.domain import next_entry
from shared.domain.errors import InvalidMessage, NotMissing, Unavailable
from shared.domain.journal import Status
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.standstill import StandstillKind
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Parked, Processed
from tests.business import BusinessWorld, healthy, payment, plain, processed_and_died
from tests.standstills import listed, shown
from tests.world import GAP_SECONDS, POLICY, REGIONS, World, message, take

# When an earlier message is missing, those after it wait and are parked, never applied early.


async def test_it_waits_until_the_other_region_has_filled_the_gap(world: World) -> None:
    async def fill_later() -> None:
        await world.clock.sleep(3)
        await take(world.west, message(0), message(1))

    outcome, _ = await asyncio.gather(world.east.consumer.consume(message(2)), fill_later())

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1, 2, 3]


async def test_it_is_parked_once_when_nobody_fills_the_gap_in_time(world: World) -> None:
    assert await world.east.consumer.consume(message(2)) == Parked()

    assert GAP_SECONDS <= world.clock.now() <= 2 * GAP_SECONDS
    assert world.amounts() == []
    (entry,) = world.entries()
    assert entry["parked"] == {"bank": 1}
    # Its copy is settled without another entry.
    assert await world.west.consumer.consume(message(2)) == AlreadyDone()
    assert len(world.entries()) == 1


async def test_what_was_parked_is_drained_in_order_before_it_is_settled(world: World) -> None:
    await take(world.east, *(message(sequence) for sequence in (3, 1, 2)))

    await world.west.consumer.consume(message(0))

    assert world.amounts() == [1, 2, 3, 4]
    assert "parked" not in world.entries()[-1]
    assert not any(d["kind"] == "parked" for d in world.journal.partitions["acc-7"].values())


async def test_a_worker_that_dies_before_draining_leaves_it_to_the_redelivery(world: World) -> None:
    await world.east.consumer.consume(message(1))
    await processed_and_died(world.east, message(0))

    assert await world.worker("east").consumer.consume(message(0)) == AlreadyDone()

    assert world.amounts() == [1, 2]


async def test_two_workers_draining_at_once_apply_each_message_once(world: World) -> None:
    await take(world.east, *(message(sequence) for sequence in range(9, 0, -1)))

    await asyncio.gather(
        world.east.consumer.consume(message(0)), world.west.consumer.consume(message(0))
    )

    assert world.amounts() == list(range(1, 11))


async def test_many_parked_messages_stay_small_and_drain_in_order(world: World) -> None:
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    await take(world.east, *(message(sequence) for sequence in range(500, 0, -1)))
    largest = max(len(json.dumps(entry)) for entry in world.entries())

    await world.east.consumer.consume(message(0))

    assert largest < 700
    assert world.amounts() == list(range(1, 502))


async def test_a_remembered_head_is_read_again_before_anybody_waits(world: World) -> None:
    for worker, sequence in ((world.east, 0), (world.west, 1), (world.east, 2)):
        await worker.consumer.consume(message(sequence))

    assert world.clock.now() == 0
    assert world.amounts() == [1, 2, 3]


# When the first message is missing in one region, the other one's copy does for both.

BILLS = [message(n, kind="account.bill") for n in range(4)]


@pytest.mark.parametrize("lacking", REGIONS)
async def test_the_region_that_lacks_it_parks_the_rest_and_the_other_drains_them(
    world: World, lacking: str
) -> None:
    without, whole = (world.east, world.west) if lacking == "east" else (world.west, world.east)
    assert set(await take(without, *BILLS[1:])) == {Parked()}

    assert isinstance(await whole.consumer.consume(BILLS[0]), Processed)

    assert world.amounts() == [1, 2, 3, 4]
    quiet = await healthy(*BILLS)
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")
    assert set(await take(whole, *BILLS[1:])) == {AlreadyDone()}
    assert world.amounts() == [1, 2, 3, 4]


# When a missing number is skipped by a person, what waits goes on, and a late message is refused.

LATE_SECONDS = POLICY.standstill_seconds + 1


def skipping(number: int, group: str = "bank") -> ResolutionRequest:
    """The decision to go on without the numbers up to this one."""
    return ResolutionRequest(
        ResolutionAction.SKIP_NUMBER, "Ada", "its sender is gone", group=group, number=number
    )


async def gapped(world: World, *arrived: int) -> None:
    """Let a session get these numbers."""
    await take(world.east, *map(message, arrived))


async def test_a_gap_is_listed_once_it_is_late_and_until_its_number_comes(world: World) -> None:
    await gapped(world, 0, 3, 4, 5)
    assert await shown(world.west) == []
    world.clock.seconds += LATE_SECONDS

    (gap,) = await listed(world.west)

    assert (gap.kind, gap.session, gap.group) == (StandstillKind.GAP, "acc-7", "bank")
    assert (gap.first, gap.last, gap.parked) == (1, 2, 3)
    assert gap.cause == "numbers 1 to 2 of group 'bank' did not come"
    await gapped(world, 1, 2)
    assert await shown(world.west) == []
    assert world.amounts() == [1, 2, 3, 4, 5, 6]


async def test_what_waited_is_processed_and_the_decision_is_recorded(world: World) -> None:
    await gapped(world, 0, 3, 4)

    entry = await world.west.resolver.resolve("acc-7", skipping(2))

    assert world.amounts() == [1, 4, 5]
    assert entry.status is Status.SKIPPED
    assert [i.number.sequence for i in entry.identities] == [1, 2]
    assert entry.resolution is not None
    assert (entry.resolution.who, entry.resolution.why) == ("Ada", "its sender is gone")
    assert entry.reason == "its sender is gone"
    assert isinstance(await world.east.consumer.consume(message(5)), Processed)
    world.clock.seconds += LATE_SECONDS
    assert await shown(world.east) == []


@pytest.mark.parametrize("late", [1, 2])
@pytest.mark.parametrize("behind", [0, 1, 60])
@pytest.mark.parametrize("region", ["east", "west"])
async def test_a_message_that_comes_after_all_is_refused_by_name(
    world: World, late: int, behind: int, region: str
) -> None:
    await gapped(world, 0, 3)
    await world.east.resolver.resolve("acc-7", skipping(2))
    await gapped(world, *range(4, 4 + behind))
    before = world.amounts()

    for worker in (getattr(world, region), world.worker("east"), world.worker("west")):
        outcome = await worker.consumer.consume(message(late))
        assert isinstance(outcome, Conflicting)
        assert f"number {late} of group 'bank' was skipped by a person" in outcome.reason

    assert world.amounts() == before
    assert late + 1 not in before


async def test_only_some_of_the_missing_numbers_can_be_skipped(world: World) -> None:
    await gapped(world, 0, 3)

    await world.east.resolver.resolve("acc-7", skipping(1))

    assert world.amounts() == [1]
    await gapped(world, 2)
    assert world.amounts() == [1, 3, 4]


@pytest.mark.parametrize(
    ("arrived", "number", "said"),
    [
        ((), 0, "nothing waits"),
        ((0,), 1, "nothing waits"),
        ((0, 2), 2, "nothing waits"),
        ((0, 2), 7, "nothing waits"),
        ((0, 2), 0, "came or was skipped"),
    ],
)
async def test_a_number_that_is_not_missing_is_not_skipped(
    world: World, arrived: Sequence[int], number: int, said: str
) -> None:
    await gapped(world, *arrived)
    entries = list(world.entries())

    with pytest.raises(NotMissing, match=said):
        await world.east.resolver.resolve("acc-7", skipping(number))

    assert world.entries() == entries


async def test_nobody_skips_more_than_an_entry_can_name(world: World) -> None:
    await gapped(world, 1_500)

    with pytest.raises(InvalidMessage, match="at most 1000 numbers"):
        await world.east.resolver.resolve("acc-7", skipping(1_400))

    await world.east.resolver.resolve("acc-7", skipping(999))
    await world.east.resolver.resolve("acc-7", skipping(1_499))
    assert world.amounts() == [1_501]


async def test_the_number_of_a_fault_is_no_missing_number(world: World) -> None:
    await world.east.consumer.consume(message(0, kind="account.burn"))
    await gapped(world, 2)

    with pytest.raises(NotMissing, match="waits for its fault at entry 0"):
        await world.east.resolver.resolve("acc-7", skipping(1))


async def test_a_skipping_waits_for_a_handler_that_runs(world: BusinessWorld) -> None:
    await gapped(world, 2)

    async def skip_meanwhile() -> None:
        with pytest.raises(Unavailable, match="running a handler"):
            await world.west.resolver.resolve("acc-7", skipping(1))

    world.outside.before = skip_meanwhile
    await world.east.consumer.consume(payment(0))
    await world.west.resolver.resolve("acc-7", skipping(1))


async def test_the_missing_message_and_its_skipping_at_once_take_effect_once(world: World) -> None:
    await gapped(world, 0, 2)

    arrived, skipped = await asyncio.gather(
        world.east.consumer.consume(message(1)),
        world.west.resolver.resolve("acc-7", skipping(1)),
        return_exceptions=True,
    )

    is_skipped = not isinstance(skipped, NotMissing)
    assert isinstance(arrived, Conflicting if is_skipped else Processed)
    assert world.amounts() == ([1, 3] if is_skipped else [1, 2, 3])


async def test_of_two_regions_at_once_one_skips_and_the_other_is_told(world: World) -> None:
    await gapped(world, 0, 2)

    answers = await asyncio.gather(
        world.east.resolver.resolve("acc-7", skipping(1)),
        world.west.resolver.resolve("acc-7", skipping(1)),
        return_exceptions=True,
    )

    assert sorted(type(answer).__name__ for answer in answers) == ["Entry", "NotMissing"]
    assert world.amounts() == [1, 3]


async def test_messages_without_numbers_have_no_gap(world: World) -> None:
    outcomes = await take(world.east, message(0, kind="account.burn"), plain(1))
    assert outcomes[1] == Parked()
    world.clock.seconds += LATE_SECONDS

    assert [one.kind for one in await listed(world.east)] == [StandstillKind.HALT]
    with pytest.raises(NotMissing):
        await world.east.resolver.resolve("acc-7", skipping(0, "$arrivals"))


async def test_a_gap_of_a_group_with_an_evicted_cursor_is_listed_and_skipped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_entry, "CURSORS_MAX", 2)
    groups = [f"sender-{n}" for n in range(5)]
    await take(world.east, *(message(0, 0, group=group) for group in groups))
    await world.east.consumer.consume(message(3, 30, group=groups[0]))
    await take(world.east, *(message(1, 1, group=group) for group in groups[1:]))
    world.clock.seconds += LATE_SECONDS

    (gap,) = await listed(world.west)

    assert (gap.group, gap.first, gap.last) == (groups[0], 1, 2)
    with pytest.raises(NotMissing, match="came or was skipped"):
        await world.west.resolver.resolve("acc-7", skipping(0, groups[0]))
    await world.west.resolver.resolve("acc-7", skipping(2, groups[0]))
    assert world.amounts() == [0] * 5 + [1] * 4 + [30]
    late = await world.worker("east").consumer.consume(message(1, 10, group=groups[0]))
    assert isinstance(late, Conflicting)
    assert "was skipped by a person" in late.reason
