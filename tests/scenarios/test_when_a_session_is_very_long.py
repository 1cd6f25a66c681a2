"""A session is very long, or its store far away: the last message costs what the first one did."""

import asyncio
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
from shared.domain.outbox import OUTPUTS, OutputAction, OutputDecision
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services
from shared.engine.consume.park import RUN_MESSAGES_MAX
from shared.engine.handle import handle
from shared.ports import SessionNeed
from shared.storage.entries import MILESTONE_EVERY
from shared.storage.queries import sessions_query
from tests.business import healthy, plain, worker_with
from tests.far_store import FarJournal
from tests.loop_clock import LoopClock, in_virtual_time
from tests.scenarios.test_when_copies_arrive import GAME, fire, game, move
from tests.sizes import IS_PROOF
from tests.world import DELAY_SECONDS, POLICY, REGIONS, SKIP, World, message, require, take

# When a session is very long, in turn or behind a fault, the last message costs what the first did.

MANY = 10_000 if IS_PROOF else 3_000
PART = 1_000


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
        outputs += [(m.id, m.body) for batch in result.batches for m in batch.messages]
        before = HandlerInput(result.state, result.produced)
    return outputs


async def parts(world: World, messages: Sequence[Message], region: str) -> list[Counter[str]]:
    """The calls for each thousand messages."""
    costs = []
    for start in range(0, len(messages), PART):
        before = calls(world)
        await take(getattr(world, region), *messages[start : start + PART])
        costs.append(calls(world) - before)
    return costs


@pytest.mark.slow
async def test_the_last_of_thousands_of_messages_costs_what_the_first_did() -> None:
    world = await game()
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


@pytest.mark.slow
@pytest.mark.proof
async def test_thousands_of_messages_behind_one_fault_are_cheap_and_drain_in_order() -> None:
    world = await game()
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


@pytest.mark.slow
async def test_what_is_kept_of_a_session_does_not_grow_with_its_messages() -> None:
    world = await game()
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
    newest = require(await world.journal.head(GAME))
    assert newest.position == 4_999


# When the store is far away, what is parked ends soon, and nobody holds an invocation for long.

WRITE_SECONDS = 0.13
READ_SECONDS = 0.065
SESSION = "acc-7"
BOUND_SECONDS = POLICY.waits.bound_seconds


def far_worker(world: World, region: str = "east") -> Services:
    """A worker that is far from the store."""
    journal = FarJournal(
        world.journal, world.clock, read_seconds=READ_SECONDS, write_seconds=WRITE_SECONDS
    )
    return worker_with(world, region, journal=journal)


async def parked(count: int, kind: str = "account.add") -> World:
    """So many messages wait for the first one."""
    world = World()
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    for sequence in range(1, count + 1):
        await world.east.consumer.consume(message(sequence, sequence % 7, kind=kind))
    return world


@pytest.mark.slow
async def test_thousands_of_parked_messages_end_within_a_minute() -> None:
    world = World(handlers=shooting_range.handlers)
    played = shots(MANY + 1)
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    await take(world.east, *played[1:])
    worker = far_worker(world)
    began = world.clock.now()

    await worker.consumer.consume(played[0])
    first = world.clock.now() - began
    held = []
    while world.entries(GAME)[-1].get("parked"):
        at = world.clock.now()
        await worker.recovery.sweep()
        held.append(world.clock.now() - at)

    assert world.clock.now() - began < 60
    assert max([first, *held]) < BOUND_SECONDS + 2
    # They come back to the app, whose scoreboard counts them.
    assert world.outputs("east", "in") == world.outputs("west", "in") == judged(played)
    kinds = {document["kind"] for document in world.journal.partitions[GAME].values()}
    assert "parked" not in kinds


async def test_the_outputs_of_a_fold_are_those_of_its_messages_one_by_one() -> None:
    world = await parked(200, "account.bill")
    bills = (message(sequence, sequence % 7, kind="account.bill") for sequence in range(201))

    await far_worker(world).consumer.consume(message(0, 0, kind="account.bill"))

    quiet = await healthy(*bills)
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")


async def test_trying_blocked_outputs_again_ends_in_time_and_goes_on_later(world: World) -> None:
    world.bus.missing = {(region, "out") for region in REGIONS}
    await take(world.east, *(message(sequence, kind="account.bill") for sequence in range(100)))
    world.bus.missing.clear()
    outputs = far_worker(world).outputs
    decision = OutputDecision(OutputAction.RETRY, "Ada", "it exists now")

    left, held = [100], []
    while left[-1]:
        began = world.clock.now()
        left.append(len(await outputs.decide(SESSION, OUTPUTS, decision)))
        held.append(world.clock.now() - began)

    assert left == sorted(set(left), reverse=True)
    assert max(held) < BOUND_SECONDS + 2
    assert len(held) > 1
    for region in REGIONS:
        sent = world.bus.messages(region, "out")
        assert [m.number.sequence for m in sent if m.number] == list(range(100))


async def test_delivering_what_a_region_missed_ends_in_time_and_says_what_is_left() -> None:
    world = World()
    with world.without("west"):
        await take(world.east, *(message(sequence, kind="account.bill") for sequence in range(400)))
    resolver = far_worker(world, "west").resolver
    decision = ResolutionRequest(ResolutionAction.DELIVER, "Ada", "the west is back")

    held = []
    while True:
        began = world.clock.now()
        left = await resolver.deliver(SESSION, decision)
        held.append(world.clock.now() - began)
        if not left:
            break

    assert max(held) < BOUND_SECONDS + 2
    assert len(held) > 1
    assert world.outputs("west") == world.outputs("east")


def ends(world: World) -> list[tuple[str, str]]:
    """How each message of the session ended, in order."""
    ended = [entry for entry in world.entries() if entry["status"] != "parked"]
    return [(one["id"], entry["status"]) for entry in ended for one in entry["identities"]]


@pytest.mark.parametrize("odd", ["account.hint", "account.burn", "lockstep.void", "account.pay"])
async def test_what_cannot_be_folded_is_taken_alone_in_its_place(odd: str) -> None:
    messages = [message(n, kind=odd if n == 3 else "account.add") for n in range(7)]
    world, alone = World(), World()
    await take(world.east, *messages[1:], messages[0])
    await take(alone.east, *messages)

    assert ends(world) == ends(alone)[: len(ends(world))]
    assert world.amounts() == alone.amounts()
    assert world.entries()[-1].get("parked") == alone.entries()[-1].get("parked")


async def test_messages_without_numbers_are_folded_in_the_order_of_their_arrival() -> None:
    world = World()
    await world.east.consumer.consume(plain(0, "account.burn"))
    await take(world.east, *(plain(sequence) for sequence in range(1, 101)))
    before = len(world.entries())

    await world.west.resolver.resolve(SESSION, SKIP)

    assert world.amounts() == [n + 1 for n in range(1, 101)]
    assert len(world.entries()) == before + 1 + 3
    await take(world.worker("west"), *(plain(sequence) for sequence in range(1, 101)))
    assert len(world.amounts()) == 100


async def test_a_sweep_looks_at_one_document_of_a_session_however_many_are_parked() -> None:
    world = await parked(50)

    found = world.journal.store.find(sessions_query(SessionNeed.DRAINING, "", limit=9))

    assert len(found) == 1


async def test_what_an_older_worker_parked_is_found_and_drained() -> None:
    world = await parked(3)
    documents = world.journal.partitions[SESSION]
    for document in documents.values():
        if document["kind"] == "parked":
            document["waiting"] = True
            world.journal.store.flags[SESSION].add(document["id"])
    world.journal.store.flags[SESSION].discard(documents.pop("waiting")["id"])
    head = await world.journal.head(SESSION)
    await world.east.consumer.give_entry(
        await world.east.consumer.dispatcher.prepare(head, message(0))
    )

    world.clock.seconds += 60
    await world.west.recovery.sweep()

    assert world.amounts() == [1, 1, 2, 3]
    assert not any(document.get("waiting") for document in documents.values())


async def test_many_sessions_are_swept_in_turns_that_each_end_in_time(world: World) -> None:
    with world.without("east", "west"):
        for number in range(500):
            await world.east.consumer.consume(
                message(0, kind="account.bill", session=f"acc-{number}")
            )
    world.clock.seconds += POLICY.lag_seconds
    worker = far_worker(world)
    held: list[float] = []
    while not held or len(world.outputs("east")) < 500:
        began = world.clock.now()
        recovered = await worker.recovery.sweep()
        held.append(world.clock.now() - began)
        assert recovered.helped > 0
        assert recovered.left > 0 or len(world.outputs("east")) == 500

    # The last of the sixteen slots may begin something just before the time is up.
    assert max(held) < BOUND_SECONDS + 16
    assert len(held) > 1
    assert len(set(world.outputs("east"))) == len(world.outputs("east")) == 500


@in_virtual_time
async def test_nothing_is_sent_twice_and_nothing_is_given_back() -> None:
    world = World(LoopClock(), policy=replace(POLICY, acknowledge_seconds=0.5))
    workers = {region: far_worker(world, region) for region in REGIONS}
    held: list[float] = []

    async def receive(region: str, session: str) -> None:
        await asyncio.sleep(0 if region == "east" else DELAY_SECONDS)
        for sequence in range(20):
            began = world.clock.now()
            bill = message(sequence, kind="account.bill", session=session)
            await workers[region].consumer.consume(bill)
            held.append(world.clock.now() - began)

    async def sweep(region: str) -> None:
        for _ in range(12):
            await asyncio.sleep(0.7)
            await workers[region].recovery.sweep()

    sessions = [f"acc-{number}" for number in range(40)]
    received = (receive(region, session) for region in REGIONS for session in sessions)
    await asyncio.gather(*received, *(sweep(region) for region in REGIONS))
    await asyncio.sleep(POLICY.lag_seconds)

    for region in REGIONS:
        outputs = world.outputs(region)
        assert len(set(outputs)) == len(outputs) == 20 * len(sessions)
    assert max(held) < 1
    assert {len(world.amounts(session)) for session in sessions} == {20}


async def test_a_session_that_cannot_be_helped_is_looked_at_less_and_less_often() -> None:
    world = World()
    await world.east.consumer.consume(message(0, kind="account.burn"))
    await world.east.consumer.consume(message(1))
    looks = []
    for _ in range(240):
        world.clock.seconds += 15
        before = world.journal.fault_plan.calls["head"]
        await world.west.recovery.sweep()
        looks.append(world.journal.fault_plan.calls["head"] - before)

    assert sum(looks[:20]) == 5
    assert sum(looks[-40:]) == 2
    await world.east.resolver.resolve(SESSION, SKIP)
    assert world.amounts() == [2]
