"""Ten thousand messages to one session, in turn or behind a fault, cost what the first ones did."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import ceil

import pytest

from functions.handlers import shooting_range
from shared.domain.handler import HandlerInput
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Parked
from shared.engine.consume.park import RUN_MESSAGES_MAX
from shared.engine.handle import handle
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.storage.documents import MILESTONE_EVERY
from tests.scenarios.test_when_a_shot_is_fired_twice import GAME, fire, move
from tests.world import POLICY, World

pytestmark = pytest.mark.slow


MANY = 10_000
PART = 1_000


def ranges() -> World:
    """Two regions with a shooting range."""
    return World(handlers=shooting_range.handlers)


def shots(count: int) -> list[Message]:
    """A game in which the target moves a lot, and every fifth message is a shot."""
    return [fire(n, n % 100) if n % 5 == 3 else move(n, n % 100) for n in range(count)]


def calls(world: World) -> Counter[str]:
    """How often the store and the bus were asked so far, by what they were asked."""
    return Counter(world.journal.fault_plan.calls) + Counter(world.bus.fault_plan.calls)


def judged(messages: Sequence[Message]) -> list[tuple[str, bytes]]:
    """What the handlers alone, one after another, give for these messages."""
    before = HandlerInput()
    outputs: list[tuple[str, bytes]] = []
    for arriving in messages:
        result = handle.run_pure(shooting_range.handlers.of(arriving.type), before, arriving)
        outputs += [(m.id, m.body) for parcel in result.batches for m in parcel.messages]
        before = HandlerInput(result.state, result.produced)
    return outputs


async def parts(world: World, messages: Sequence[Message], region: str) -> list[Counter[str]]:
    """The calls for each thousand messages."""
    worker = world.east if region == "east" else world.west
    costs = []
    for start in range(0, len(messages), PART):
        before = calls(world)
        for arriving in messages[start : start + PART]:
            await worker.consumer.consume(arriving)
        costs.append(calls(world) - before)
    return costs


async def test_the_ten_thousandth_message_costs_what_the_first_did() -> None:
    world = ranges()
    played = shots(MANY)

    east = await parts(world, played, "east")
    sizes = [len(json.dumps(entry)) for entry in world.entries(GAME)]
    west = await parts(world, played, "west")

    assert all(cost == east[0] for cost in east)
    assert east[0]["append"] == PART
    assert max(sizes[-PART:]) - max(sizes[:PART]) < 50
    assert max(sizes) < 1_000
    assert all(cost.total() <= PART / 10 for cost in west)
    assert not any(cost["append"] for cost in west)
    assert len(world.entries(GAME)) == MANY
    assert world.outputs("east", "in") == world.outputs("west", "in")
    assert len(world.outputs("east", "in")) == MANY // 5


@pytest.mark.proof
async def test_ten_thousand_messages_behind_one_fault_are_cheap_and_drain_in_order() -> None:
    world = ranges()
    fault = replace(fire(0, 0), body=b'{"position":1000}')
    await world.east.consumer.consume(fault)
    waiting = shots(MANY + 1)[1:]

    parking = await parts(world, waiting, "east")
    parked = [e for e in world.entries(GAME) if e["status"] == Status.PARKED]
    sizes = [len(json.dumps(entry)) for entry in parked]
    assert len(parked) == MANY
    assert max(sizes) - min(sizes) < 50
    assert max(sizes) < 700
    assert all(cost == {"append": PART} for cost in parking[1:])
    assert world.clock.now() == 0

    before = calls(world)
    decision = ResolutionRequest(
        ResolutionAction.EDIT, who="ann", why="a typo", body=b'{"position":10}'
    )
    await world.east.resolver.resolve(GAME, decision)

    cost = calls(world) - before
    folds = ceil(MANY / RUN_MESSAGES_MAX)
    assert cost["append"] == folds + 1
    assert cost["parked"] == cost["parked_run"] == folds
    assert cost["head"] + cost["entry"] + cost["pending"] < 10
    expected = judged([replace(fault, body=b'{"position":10}'), *waiting])
    assert world.outputs("east", "in") == world.outputs("west", "in") == expected
    assert not any(d["kind"] == "parked" for d in world.journal.partitions[GAME].values())


async def test_copies_of_parked_messages_are_known_without_another_entry() -> None:
    world = ranges()
    await world.east.consumer.consume(replace(fire(0, 0), body=b'{"position":1000}'))
    waiting = shots(101)[1:]
    for arriving in waiting:
        assert await world.east.consumer.consume(arriving) == Parked()
    entries = len(world.entries(GAME))

    for arriving in waiting:
        assert await world.worker("west").consumer.consume(arriving) == AlreadyDone()
        assert await world.worker("east").consumer.consume(arriving) == AlreadyDone()

    assert len(world.entries(GAME)) == entries


async def test_what_is_kept_of_a_session_does_not_grow_with_its_messages() -> None:
    world = ranges()
    kept: list[int] = []
    size: list[int] = []
    for sequence in range(5_000):
        await world.east.consumer.consume(move(sequence, sequence % 100))
        world.clock.seconds += POLICY.retention_seconds / 500
        if sequence % 500 == 499:
            await world.east.compactor.compact()
            documents = world.journal.partitions[GAME].values()
            kept.append(len(documents))
            size.append(max(len(json.dumps(document)) for document in documents))

    assert max(kept) <= 500 + 2 * MILESTONE_EVERY
    assert max(size) < 600
    newest = await world.journal.head(GAME)
    assert newest is not None
    assert newest.position == 4_999
