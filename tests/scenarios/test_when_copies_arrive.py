"""Copies arrive late, in crowds or backwards: they write and change nothing, and cost little."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from functions.handlers.shooting_range import handlers as range_handlers
from functions.handlers.shooting_range import scoreboard_of
from shared.domain.message import Message, Number, derive_id
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Outcome,
    Parked,
    Processed,
)
from shared.storage.entries import position_id
from shared.testkit.regions import consume_together
from tests.business import BusinessWorld, OrderedClock, healthy, swept
from tests.crashes import sent
from tests.world import REGIONS, World, message, sweep_later, take

# When copies arrive late, they write nothing and read little.

TIME = "2026-05-28T20:26:40Z"
KINDS = ["account.add", "account.bill", "account.pay"]
MANY = 400


async def done(*arrivals: Message) -> World:
    """The leading region has done the work, and nothing was counted yet."""
    world = await healthy(*arrivals)
    world.journal.fault_plan.calls.clear()
    return world


async def cost_of_copies(world: World, copies: Sequence[Message]) -> dict[str, int]:
    """The store calls that one worker of the other region makes for them."""
    worker = world.worker("west")
    assert set(await take(worker, *copies)) == {AlreadyDone()}
    return dict(world.journal.fault_plan.calls)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("many", "reads"), [(1, 1), (MANY, 1 + MANY // 40)])
async def test_a_copy_costs_a_point_read_and_many_one_for_every_forty(
    kind: str, many: int, reads: int
) -> None:
    bills = [message(n, kind=kind) for n in range(many)]
    world = await done(*bills)

    assert await cost_of_copies(world, bills) == {"processed": reads}


async def test_a_leading_region_without_a_memory_commits_and_sends_nothing_anew() -> None:
    """Its handlers may run for the first number and what comes with it, as P7 says."""
    bills = [message(n, kind="account.bill") for n in range(12)]
    world = await done(*bills)
    state, outputs = world.amounts(), world.outputs("east")

    for start in range(0, len(bills), 4):
        outcomes = await consume_together(world.worker("east"), bills[start : start + 4])
        assert set(outcomes) == {AlreadyDone()}

    assert (world.amounts(), world.outputs("east")) == (state, outputs)
    # Only the first number is tried without a read, and refused.
    assert world.journal.fault_plan.calls["append"] <= 1


async def test_copies_that_come_twice_cost_nothing_more() -> None:
    bills = [message(n) for n in range(40)]
    world = await done(*bills)

    assert await cost_of_copies(world, [*bills, *reversed(bills)]) == {"processed": 2}


async def test_copies_that_follow_closely_cost_at_most_a_read_each() -> None:
    world = await done()
    worker = world.worker("west")
    for n in range(40):
        await world.east.consumer.consume(message(n))
        world.journal.fault_plan.calls.clear()

        assert await worker.consumer.consume(message(n)) == AlreadyDone()

        assert sum(world.journal.fault_plan.calls.values()) <= 1


@pytest.mark.parametrize("at_once", [1, 10], ids=["interleaved groups", "batches"])
async def test_copies_of_interleaved_groups_and_of_batches_cost_few_reads(at_once: int) -> None:
    world, groups = BusinessWorld(), 3 if at_once == 1 else 1
    flow = [message(n // groups, group=f"g{n % groups}") for n in range(MANY)]
    for start in range(0, MANY, at_once):
        await consume_together(world.east, flow[start : start + at_once])
    assert len(world.entries()) == MANY // at_once
    world.journal.fault_plan.calls.clear()

    calls = await cost_of_copies(world, flow)

    assert "append" not in calls
    assert sum(calls.values()) <= 0.1 * MANY


@pytest.mark.parametrize("kind", KINDS)
async def test_a_copy_without_a_number_costs_one_point_read_and_no_write(kind: str) -> None:
    plain = [replace(message(n, kind=kind), number=None, time=TIME) for n in range(40)]
    world = await done(*plain)

    calls = await cost_of_copies(world, plain)

    assert calls.pop("marker") == 40
    # Whether it is claimed only the head says, and only a handler that calls the outside claims.
    assert calls == ({"head": 40} if kind == "account.pay" else {})


async def test_the_leading_region_does_not_look_before_it_writes() -> None:
    world = await done(message(0))
    calls = world.journal.fault_plan.calls

    await take(world.east, *(message(n) for n in range(1, 11)))
    assert dict(calls) == {"append": 10}

    # A handler that calls the outside costs two writes.
    await take(world.east, *(message(n, kind="account.pay") for n in range(11, 21)))
    assert (calls["append"], calls["replace"], calls["stored_entry"]) == (20, 10, 10)


# When many copies arrive at once, over both regions, each message has one effect.

WORKERS = 10


def plain(of: Message) -> Message:
    """The message without its number."""
    return replace(of, number=None, time=TIME)


def form(of: str) -> Callable[[Message], Message]:
    """With or without a number."""
    return plain if of == "un-numbered" else lambda m: m


async def flood(world: World, *flows: tuple[Message, int]) -> list[Outcome]:
    """Every copy at once, each at one of many workers of both regions."""
    workers = [world.worker(REGIONS[n % 2]) for n in range(WORKERS)]
    copies = [arriving for arriving, count in flows for _ in range(count)]
    # Copies of different messages meet at every worker.
    mixed = sorted(enumerate(copies), key=lambda pair: pair[0] * 7 % len(copies))
    return await asyncio.gather(
        *(workers[n % WORKERS].consumer.consume(arriving) for n, (_, arriving) in enumerate(mixed))
    )


def bodies(world: World, region: str) -> list[bytes]:
    """What a region was sent, each once, whatever the order."""
    return sorted(body for _, body in sent(world, region))


@pytest.mark.parametrize("numbering", ["numbered", "un-numbered"])
@pytest.mark.parametrize("kinds", [("bill", "bill"), ("pay", "pay"), ("pay", "bill")])
async def test_there_are_exactly_two_effects(kinds: tuple[str, str], numbering: str) -> None:
    one, other = (
        form(numbering)(message(n, kind=f"account.{kind}")) for n, kind in enumerate(kinds)
    )
    world = BusinessWorld(clock=OrderedClock())

    outcomes = await flood(world, (one, 100), (other, 120))
    await swept(world)

    assert sorted(world.amounts()) == [1, 2]
    assert len(world.outside.asked) == kinds.count("pay")
    expected = [await healthy(one, other), await healthy(other, one)]
    assert bodies(world, "east") in [bodies(quiet, "east") for quiet in expected]
    assert bodies(world, "east") == bodies(world, "west")
    assert {type(outcome) for outcome in outcomes} <= {Processed, AlreadyDone, Parked, Claimed}
    assert await world.pending() == []


async def test_numbered_ones_are_done_in_the_order_of_their_numbers() -> None:
    world = BusinessWorld(clock=OrderedClock())
    bills = [message(n, kind="account.bill") for n in range(5)]

    await flood(world, *((bills[n], 40) for n in (4, 2, 0, 3, 1)))

    quiet = await healthy(*bills)
    assert world.amounts() == [1, 2, 3, 4, 5]
    assert sent(world, "east") == sent(world, "west") == quiet.outputs("east")


@pytest.mark.parametrize("numbering", ["numbered", "un-numbered"])
async def test_of_two_contents_under_one_name_one_stands(numbering: str) -> None:
    one = form(numbering)(message(0, kind="account.bill"))
    world = BusinessWorld(clock=OrderedClock())

    outcomes = await flood(world, (one, 50), (replace(one, body=b'{"amount":99}'), 50))

    assert world.amounts() in ([1], [99])
    assert sum(isinstance(outcome, Processed) for outcome in outcomes) == 1
    assert sum(isinstance(outcome, Conflicting) for outcome in outcomes) == 50
    assert len(sent(world, "east")) == len(sent(world, "west")) == 1


async def test_two_first_ever_messages_of_two_groups_are_both_done() -> None:
    one = message(0, kind="account.bill", group="one")
    other = message(0, 7, kind="account.bill", group="other")
    world = BusinessWorld(clock=OrderedClock())

    outcomes = await flood(world, (one, 50), (other, 50))

    assert sorted(world.amounts()) == [1, 7]
    assert sum(isinstance(outcome, Processed) for outcome in outcomes) == 2
    expected = [await healthy(one, other), await healthy(other, one)]
    assert sent(world, "east") in [quiet.outputs("east") for quiet in expected]
    assert sent(world, "east") == sent(world, "west")


# When a shot is fired twice at a target that has moved on, it is judged once, and as it was.

GAME = "game-1"


def numbered(sequence: int, kind: str, position: int) -> Message:
    """A message of the game."""
    body = json.dumps({"position": position}).encode()
    return Message(derive_id(GAME, str(sequence)), GAME, kind, body, Number("g", 0, sequence))


def move(sequence: int, position: int) -> Message:
    """Put the target somewhere."""
    return numbered(sequence, "range.move", position)


def fire(sequence: int, position: int) -> Message:
    """Shoot."""
    return numbered(sequence, "range.fire", position)


async def game(*played: Message) -> World:
    """A shooting range on which this was played."""
    world = World(handlers=range_handlers)
    await take(world.east, *played)
    return world


async def at_once(world: World, *messages: Message) -> None:
    """Both regions take all of these at the same time."""
    workers = (world.east, world.west)
    await asyncio.gather(
        *(workers[n % 2].consumer.consume(shot) for n, shot in enumerate(messages))
    )


async def score(world: World) -> tuple[int, int]:
    """What the scoreboard counts when it takes what both regions sent, twice over."""
    await sweep_later(world)
    for region in REGIONS:
        await take(world.east, *world.bus.messages(region, "in") * 2)
    head = await world.journal.head(scoreboard_of(GAME))
    counted = dict(head.state or {}) if head else {}
    return counted.get("hits", 0), counted.get("misses", 0)


async def judged(*played: Message) -> list[tuple[str, bytes]]:
    """What an undisturbed worker tells the scoreboard."""
    return (await game(*played)).outputs("east", "in")


async def target(world: World) -> dict[str, int]:
    """Where the target stands."""
    head = await world.journal.head(GAME)
    return dict(head.state or {}) if head else {}


async def test_a_copy_of_a_hit_after_the_target_moved_away_does_not_become_a_miss() -> None:
    played = [move(0, 1), fire(1, 1), move(2, 2)]
    world = await game(*played)
    for region in REGIONS:
        await world.worker(region).consumer.consume(fire(1, 1))

    assert world.outputs("east", "in") == world.outputs("west", "in") == await judged(*played)
    assert await score(world) == (1, 0)
    assert await target(world) == {"position": 2, "attempts": 0}


async def test_a_hundred_copies_of_one_shot_and_more_of_another_at_once_are_two_hits() -> None:
    world = await game(move(0, 4))
    await at_once(world, *[fire(1, 4)] * 100, *[fire(2, 4)] * 120)

    expected = set(await judged(move(0, 4), fire(1, 4), fire(2, 4)))
    assert set(world.outputs("east", "in")) == set(world.outputs("west", "in")) == expected
    assert await score(world) == (2, 0)


# When a remembered head outlives its state, a copy is still recognised.


async def test_a_copy_is_recognised_with_a_head_whose_state_was_compacted(world: World) -> None:
    await world.east.consumer.consume(message(0))
    await world.east.consumer.consume(message(2))
    assert isinstance(await world.west.consumer.consume(message(1)), Processed)
    for position in range(2):
        del world.journal.partitions["acc-7"][position_id(position)]

    assert isinstance(await world.east.consumer.consume(message(1)), AlreadyDone)
    assert world.amounts() == [1, 2, 3]
