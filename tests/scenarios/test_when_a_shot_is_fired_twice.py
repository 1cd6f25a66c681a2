"""Copies of shots and moves meet a target that has moved on: each is judged once, and as it was."""

import asyncio
import json
from collections.abc import Iterable

import pytest

from functions.handlers.shooting_range import handlers, scoreboard_of
from shared.domain.message import Message, Number, derive_id
from tests.world import LAG_SECONDS, World

GAME = "game-1"

type Score = tuple[int, int]


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


@pytest.fixture
def world() -> World:
    """Two regions with a shooting range."""
    return World(handlers=handlers)


async def at_once(world: World, *messages: Message) -> None:
    """Both regions take all of these at the same time."""
    workers = (world.east, world.west)
    await asyncio.gather(
        *(workers[n % 2].consumer.consume(shot) for n, shot in enumerate(messages))
    )


async def score(world: World) -> Score:
    """What the scoreboard counts when it takes what both regions sent, twice over."""
    await settled(world)
    for region in ("east", "west"):
        for told in world.bus.messages(region, "in") * 2:
            await world.east.consumer.consume(told)
    head = await world.journal.head(scoreboard_of(GAME))
    counted = dict(head.state or {}) if head else {}
    return counted.get("hits", 0), counted.get("misses", 0)


async def settled(world: World) -> None:
    """Let the sweeps pay what is owed."""
    for worker in (world.east, world.west):
        world.clock.seconds += LAG_SECONDS
        await worker.recovery.sweep()


async def judged(messages: Iterable[Message]) -> list[tuple[str, bytes]]:
    """What an undisturbed worker tells the scoreboard."""
    quiet = World(handlers=handlers)
    for arriving in messages:
        await quiet.east.consumer.consume(arriving)
    return quiet.outputs("east", "in")


async def target(world: World) -> dict[str, int]:
    """Where the target stands."""
    head = await world.journal.head(GAME)
    return dict(head.state or {}) if head else {}


async def test_two_copies_of_a_shot_at_once_hit_once(world: World) -> None:
    await world.east.consumer.consume(move(0, 10))
    await at_once(world, fire(1, 10), fire(1, 10))

    assert set(world.outputs("east", "in")) == set(await judged([move(0, 10), fire(1, 10)]))
    assert await score(world) == (1, 0)


async def test_a_copy_of_a_hit_after_the_target_moved_away_does_not_become_a_miss(
    world: World,
) -> None:
    played = [move(0, 1), fire(1, 1), move(2, 2)]
    for arriving in played:
        await world.east.consumer.consume(arriving)
    await world.worker("east").consumer.consume(fire(1, 1))
    await world.worker("west").consumer.consume(fire(1, 1))

    assert world.outputs("east", "in") == world.outputs("west", "in") == await judged(played)
    assert await score(world) == (1, 0)
    assert await target(world) == {"position": 2, "attempts": 0}


async def test_a_hit_owed_to_a_region_is_made_again_on_the_target_as_it_stood(
    world: World,
) -> None:
    played = [move(0, 1), fire(1, 1), move(2, 2), fire(3, 1)]
    world.bus.unavailable = {"west"}
    for arriving in played:
        await world.east.consumer.consume(arriving)
    world.bus.unavailable = set()

    await settled(world)

    assert world.outputs("west", "in") == world.outputs("east", "in") == await judged(played)
    assert await score(world) == (1, 1)


async def test_two_copies_of_a_shot_and_a_move_at_once_count_one_shot(world: World) -> None:
    await world.east.consumer.consume(move(0, 5))
    await at_once(world, fire(1, 5), fire(1, 5), move(2, 7), fire(1, 5))

    assert sum(await score(world)) == 1
    assert set(world.outputs("east", "in")) == set(await judged([move(0, 5), fire(1, 5)]))
    assert await target(world) == {"position": 7, "attempts": 0}


async def test_two_copies_of_a_hit_on_the_scoreboard_count_once(world: World) -> None:
    await world.east.consumer.consume(move(0, 3))
    await world.east.consumer.consume(fire(1, 3))
    (told,) = world.bus.messages("east", "in")

    await at_once(world, told, told)

    assert await score(world) == (1, 0)


async def test_a_copy_of_the_first_move_in_the_second_round_does_not_move_the_target_back(
    world: World,
) -> None:
    played = [move(0, 5), move(1, 10), fire(2, 10)]
    for arriving in [*played, move(0, 5)]:
        await world.east.consumer.consume(arriving)
    await world.worker("west").consumer.consume(move(0, 5))

    assert await target(world) == {"position": 10, "attempts": 1}
    assert world.outputs("east", "in") == world.outputs("west", "in") == await judged(played)
    assert await score(world) == (1, 0)


async def test_a_hundred_copies_of_one_shot_and_more_of_another_at_once_are_two_hits(
    world: World,
) -> None:
    await world.east.consumer.consume(move(0, 4))
    await at_once(world, *[fire(1, 4)] * 100, *[fire(2, 4)] * 120)

    expected = await judged([move(0, 4), fire(1, 4), fire(2, 4)])
    assert set(world.outputs("east", "in")) == set(world.outputs("west", "in")) == set(expected)
    assert await score(world) == (2, 0)


async def test_copies_of_a_whole_game_arriving_backwards_change_nothing(world: World) -> None:
    played = [move(0, 50), *(fire(n, 50) for n in range(1, 13))]
    for arriving in played:
        await world.east.consumer.consume(arriving)
    before = await target(world)

    for arriving in reversed(played):
        await world.worker("west").consumer.consume(arriving)

    assert world.outputs("east", "in") == world.outputs("west", "in") == await judged(played)
    assert await target(world) == before
    assert sum(await score(world)) == 12
