"""Calls of a session gather: one entry for all that came together, and none is lost with it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from proof.simulation.world import virtual_time
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.handler import Context, Handlers
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Outcome, Parked, Processed
from shared.engine.consume.turns import LINGER_SECONDS_MAX, LINGER_SECONDS_MIN
from shared.testkit.injected_faults import CallFault
from shared.testkit.regions import consume_together
from tests.business import Gated, healthy, plain
from tests.far_store import FarJournal
from tests.loop_clock import LoopClock, in_world
from tests.sized_outputs import WRITER, writing
from tests.world import (
    GAP_SECONDS,
    POLICY,
    SKIP,
    Account,
    Amount,
    World,
    add,
    handlers,
    message,
    take,
)

# When calls of a session gather, one commits for all, and none is lost with it.

TEN = [message(n, kind="account.bill") for n in range(10)]
TURNS_MAX = 100
SECONDS_MAX = 60.0


def begin(worker: Services, messages: Sequence[Message]) -> list[asyncio.Task[Outcome]]:
    """Calls that begin in this order; the broker's order is that of the numbers."""
    calls = []
    for one in messages:
        assert one.number is not None
        calls.append(asyncio.create_task(worker.consumer.consume(one, one.number.sequence)))
    return calls


def messages_of(world: World) -> list[int]:
    """The number of messages of each entry."""
    return [len(entry["identities"]) for entry in world.entries()]


@asynccontextmanager
async def during_a_write(
    world: World, *messages: Message
) -> AsyncIterator[list[asyncio.Task[Outcome]]]:
    """Calls whose write is under way inside the block, and goes through at its end."""
    slow = Gated(world.journal, "append")
    slow.gate.clear()
    world.east.worker.journal = slow
    calls = begin(world.east, messages)
    await slow.waits.wait()
    yield calls
    slow.gate.set()


async def end(*calls: asyncio.Task[Outcome]) -> list[Outcome | BaseException]:
    """What became of calls, which all end within moments of real time."""
    async with asyncio.timeout(SECONDS_MAX):
        return await asyncio.gather(*calls, return_exceptions=True)


async def wait_a_moment() -> None:
    """Let everything go on that can."""
    for _ in range(TURNS_MAX):
        await asyncio.sleep(0)


async def test_what_arrives_during_a_write_is_the_next_entry_in_any_order(world: World) -> None:
    async with during_a_write(world, TEN[0]) as (first,):
        others = begin(world.east, [TEN[n] for n in (7, 2, 9, 1, 4, 3, 8, 5, 6)])
        await wait_a_moment()
    outcomes = await end(first, *others)

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert messages_of(world) == [1, 9]
    assert world.amounts() == list(range(1, 11))
    assert world.outputs("east") == world.outputs("west") == (await healthy(*TEN)).outputs("east")


@pytest.mark.parametrize("leader_dies", [True, False])
async def test_a_call_that_is_cancelled_takes_no_other_with_it(leader_dies: bool) -> None:
    world = World()

    async with during_a_write(world, TEN[0]) as (first,):
        others = begin(world.east, TEN[1:])
        await wait_a_moment()
        (first if leader_dies else others[3]).cancel()
        await wait_a_moment()
    outcomes = await end(first, *others)

    assert sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes) == 1
    # What was cancelled is delivered again, and so is what waited for it in vain.
    again = await end(*begin(world.west, TEN))
    assert {type(outcome) for outcome in again} <= {Processed, AlreadyDone}
    assert world.amounts() == list(range(1, 11))
    assert not world.east.consumer.turns.gatherings


async def test_a_call_that_is_cancelled_during_the_write_for_it_fails_no_other() -> None:
    world = World()

    async with during_a_write(world, *TEN) as calls:
        calls[3].cancel()
    outcomes = await end(*calls)

    assert [type(o) for o in outcomes if not isinstance(o, Processed)] == [asyncio.CancelledError]
    assert messages_of(world) == [10]
    assert await world.west.consumer.consume(TEN[3]) == AlreadyDone()


async def test_a_call_that_comes_when_the_others_return_is_alone_and_served(world: World) -> None:
    calls = begin(world.east, TEN[:3])
    while not all(call.done() for call in calls):
        await asyncio.sleep(0)
        if world.entries() and len(calls) == 3:
            calls += begin(world.east, TEN[3:])

    assert {type(outcome) for outcome in await end(*calls)} == {Processed}
    assert world.amounts() == list(range(1, 11))
    assert world.journal.fault_plan.calls["head"] == 0
    assert not world.east.consumer.turns.gatherings


@pytest.mark.parametrize(
    ("fault", "result"),
    [
        (CallFault.REFUSED, Unavailable),
        (CallFault.LOST, OutcomeUnknown),
        # It is read back, and found.
        (CallFault.UNANSWERED, Processed),
    ],
)
async def test_every_call_that_waited_for_a_write_knows(fault: CallFault, result: type) -> None:
    world = World(policy=replace(POLICY, waits=replace(POLICY.waits, unknown_tries=1)))
    plan = world.journal.fault_plan
    plan.plan("append", fault)

    outcomes = await end(*begin(world.east, TEN))

    assert [type(outcome) for outcome in outcomes] == [result] * 10
    assert sum(name.endswith("append") for name in plan.made) == 1
    again = await end(*begin(world.east, TEN))
    assert {type(outcome) for outcome in again} <= {Processed, AlreadyDone}
    assert world.amounts() == list(range(1, 11))


@pytest.mark.parametrize("call", ["marker", "append"])
async def test_a_store_that_refuses_one_is_not_asked_for_others(world: World, call: str) -> None:
    plan = world.journal.fault_plan
    # Each of these is taken alone, so its own try would be as slow as the first one's was.
    plan.plan(call, *[CallFault.REFUSED] * 10)
    worker = {"marker": world.west, "append": world.east}[call]

    outcomes = await end(
        *(asyncio.create_task(worker.consumer.consume(plain(n))) for n in range(10))
    )

    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 10
    assert plan.calls[call] == 1


async def test_a_call_behind_a_gap_keeps_no_other_up_and_goes_on_when_it_ends(world: World) -> None:
    held = begin(world.east, [message(2), message(1)])
    await end(*begin(world.east, [message(0, 70, group="shop")]))
    assert not any(call.done() for call in held)
    outcomes = await end(*begin(world.east, [message(0)]), *held)

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert world.amounts() == [70, 1, 2, 3]
    assert world.clock.now() < GAP_SECONDS


async def test_calls_behind_a_gap_that_stays_are_parked_after_one_wait(world: World) -> None:
    outcomes = await end(*begin(world.east, TEN[1:]))

    assert outcomes == [Parked()] * 9
    assert GAP_SECONDS <= world.clock.now() < GAP_SECONDS + 1
    (outcome,) = await end(*begin(world.east, TEN[:1]))
    assert isinstance(outcome, Processed)
    assert world.amounts() == list(range(1, 11))


async def test_messages_handed_out_again_while_their_old_calls_run_have_one_effect() -> None:
    world = World()

    async with during_a_write(world, TEN[0]) as (first,):
        old = begin(world.east, TEN[1:])
        await wait_a_moment()
        new = begin(world.east, TEN)
        await wait_a_moment()
    outcomes = await end(first, *old, *new)

    kinds = [type(outcome) for outcome in outcomes]
    assert (kinds.count(Processed), kinds.count(AlreadyDone)) == (10, 10)
    assert world.amounts() == list(range(1, 11))
    assert len(world.outputs("east")) == len(world.outputs("west")) == 10


async def test_two_regions_that_fold_the_same_session_at_once_have_one_effect_each() -> None:
    world = World()

    async with during_a_write(world, TEN[0]) as (first,):
        east = begin(world.east, TEN[1:])
        await wait_a_moment()
        west = await end(*begin(world.west, TEN[:6]))
    outcomes = await end(first, *east)

    assert {type(outcome) for outcome in (*outcomes, *west)} == {Processed, AlreadyDone}
    assert world.amounts() == list(range(1, 11))
    sent = dict(world.outputs("east"))
    assert sent == dict(world.outputs("west"))
    assert len(sent) == 10


async def test_messages_without_numbers_are_taken_in_the_brokers_order(world: World) -> None:
    consume = world.east.consumer.consume
    await end(*(asyncio.create_task(consume(plain(n), n)) for n in (3, 0, 4, 1, 2)))

    assert world.amounts() == [1, 2, 3, 4, 5]


async def test_calls_behind_a_fault_are_parked_at_once_however_many_come_together() -> None:
    world = World()
    await world.east.consumer.consume(message(0, 5, kind="account.burn"))

    outcomes = await end(*begin(world.east, TEN[1:]))

    assert outcomes == [Parked()] * 9
    assert world.clock.now() == 0


async def test_a_copy_behind_a_missing_number_is_told_apart_at_once(world: World) -> None:
    await take(world.east, *TEN[:3])

    waiting, copy = begin(world.east, [TEN[7], TEN[1]])
    await wait_a_moment()

    assert copy.done()
    assert await copy == AlreadyDone()
    await take(world.east, *TEN[3:7])
    assert isinstance(await waiting, Processed)


# When all calls of a session begin together, one entry has all that succeed, and none is lost.


def poisoned(at: int) -> list[Message]:
    """The batch with a message that fails at one place."""
    return [*TEN[:at], message(at, kind="account.burn"), *TEN[at + 1 :]]


def names(outcomes: Sequence[Outcome]) -> list[str]:
    """What became of each message."""
    return [type(outcome).__name__ for outcome in outcomes]


async def assert_all_done_as_alone(world: World, messages: Sequence[Message] = TEN) -> None:
    """Effects and outputs are those of these messages when they come one by one."""
    alone = await healthy(*messages)
    assert world.amounts() == alone.amounts()
    assert world.outputs("east") == world.outputs("west") == alone.outputs("east")
    numbers = [m.number for m in alone.bus.messages("east", "out")]
    assert [m.number for m in world.bus.messages("east", "out")] == numbers


async def test_ten_messages_are_one_entry_and_one_write_with_the_same_outputs(world: World) -> None:
    outcomes = await consume_together(world.east, TEN)

    assert names(outcomes) == ["Processed"] * 10
    assert messages_of(world) == [10]
    assert world.journal.fault_plan.calls["append"] == 1
    await assert_all_done_as_alone(world)


@pytest.mark.parametrize("at", [0, 5, 9], ids=["first", "in the middle", "last"])
async def test_a_poison_commits_what_came_before_and_parks_the_rest(world: World, at: int) -> None:
    outcomes = await consume_together(world.east, poisoned(at))

    assert names(outcomes) == ["Processed"] * at + ["Faulted"] + ["Parked"] * (9 - at)
    assert messages_of(world) == [at] * bool(at) + [1] * (10 - at)
    assert world.amounts() == list(range(1, at + 1))
    await assert_all_done_as_alone(world, poisoned(at))

    await world.east.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [n + 1 for n in range(10) if n != at]


async def test_the_only_message_before_a_poison_is_run_once() -> None:
    ran: list[int] = []
    counting = Handlers({**handlers.by_type})

    @counting.register("account.count", state=Account, body=Amount)
    def count(account: Account, body: Amount, _: Context) -> Account:
        ran.append(body.amount)
        return add(account, body, _)

    world = World(handlers=counting)

    outcomes = await consume_together(
        world.east, [message(0, kind="account.count"), message(1, kind="account.burn")]
    )

    assert names(outcomes) == ["Processed", "Faulted"]
    assert ran == world.amounts() == [1]


OTHER = replace(message(2, kind="account.bill"), id="other", body=b'{"amount":99}')
COPIES = [*TEN[:4], TEN[1], TEN[3], *TEN[4:], TEN[9]]


@pytest.mark.parametrize(
    ("batch", "others"),
    [
        (TEN[::-1], {}),
        (COPIES, {4: "AlreadyDone", 5: "AlreadyDone", 12: "AlreadyDone"}),
        ([*TEN[:4], OTHER, *TEN[4:]], {4: "Conflicting"}),
    ],
    ids=["in reverse", "with copies", "with another message under a number"],
)
async def test_a_batch_is_put_in_order_and_what_is_not_its_own_is_found(
    world: World, batch: list[Message], others: dict[int, str]
) -> None:
    outcomes = await consume_together(world.east, batch)

    assert {n: one for n, one in enumerate(names(outcomes)) if one != "Processed"} == others
    await assert_all_done_as_alone(world)


async def test_a_gap_inside_a_batch_parks_what_follows_it(world: World) -> None:
    outcomes = await consume_together(world.east, [*TEN[:3], *TEN[4:]])

    assert names(outcomes) == ["Processed"] * 3 + ["Parked"] * 6
    assert world.amounts() == [1, 2, 3]
    await consume_together(world.east, [TEN[3]])
    await assert_all_done_as_alone(world)


async def test_a_hundred_and_fifty_messages_are_two_entries(world: World) -> None:
    await consume_together(world.east, [message(n) for n in range(150)])

    assert messages_of(world) == [100, 50]
    assert world.amounts() == list(range(1, 151))


async def test_outputs_beyond_an_entry_split_the_batch_where_they_no_longer_fit(
    world: World,
) -> None:
    batch = [writing([150_000], n) for n in range(4)] + [writing([600_000], 4), writing([1], 5)]

    outcomes = await consume_together(world.east, batch)

    assert names(outcomes) == ["Processed"] * 6
    assert [len(entry["identities"]) for entry in world.entries(WRITER)] == [2, 2, 1, 1]
    bodies = [m.body for m in world.bus.messages("east", "out")]
    assert [len(b) // 10_000 for b in bodies] == [15, 15, 15, 15, 60, 0]
    assert bodies == [m.body for m in world.bus.messages("west", "out")]


async def test_a_message_that_makes_the_state_too_large_does_not_take_the_others_with_it(
    world: World,
) -> None:
    batch = [writing([1], 0), writing([2], 1), writing([3], 2, remember=3_000_000)]

    outcomes = await consume_together(world.east, batch)

    assert names(outcomes) == ["Processed", "Processed", "Faulted"]
    assert isinstance(outcomes[2], Faulted)
    assert outcomes[2].entry.status is Status.FAULTED
    assert len(world.bus.messages("east", "out")) == 2


async def test_a_fault_that_is_skipped_lets_the_rest_of_the_batch_follow(world: World) -> None:
    batch = [*TEN[:4], message(4, kind="account.hint"), *TEN[5:]]

    outcomes = await consume_together(world.east, batch)

    assert names(outcomes) == ["Processed"] * 4 + ["Faulted"] + ["Processed"] * 5
    assert messages_of(world) == [4, 1, 5]
    assert world.amounts() == [1, 2, 3, 4, 6, 7, 8, 9, 10]


# When calls return together and are replaced one by one, the next entry waits for them.
#
# Time is virtual here: a second passes only while everything waits.

WRITE_SECONDS, SETTLE_SECONDS = 0.06, 0.01
CALLS = 16
# Two copies of one moment may differ by what floating point loses.
ROUNDING = 1e-6


@in_world
def far_away() -> World:
    """A world whose journal is far away from the eastern region."""
    world = World(LoopClock())
    world.east.worker.journal = FarJournal(
        world.journal, world.clock, read_seconds=0, write_seconds=WRITE_SECONDS
    )
    return world


async def serve(
    world: World, messages: Sequence[Message], begin_at: Sequence[float] = (0.0,) * CALLS
) -> None:
    """A host whose calls of one session begin at these times; settling a message takes a while."""
    waiting = list(enumerate(messages))

    async def take_turns(begin_after: float) -> None:
        await asyncio.sleep(begin_after)
        while waiting:
            arrival, one = waiting.pop(0)
            assert isinstance(await world.east.consumer.consume(one, arrival), Processed)
            await asyncio.sleep(SETTLE_SECONDS)

    await asyncio.gather(*map(take_turns, begin_at))


async def serve_in_rounds(world: World, messages: Sequence[Message], rounds: int) -> None:
    """A busy host: it comes to this session once a second, and needs 20 ms to begin each call."""
    waiting, calls = list(enumerate(messages)), set[asyncio.Task[Outcome]]()
    for _ in range(rounds):
        await asyncio.sleep(1.0)
        for _ in range(CALLS - sum(not call.done() for call in calls)):
            arrival, one = waiting.pop(0)
            calls.add(asyncio.create_task(world.east.consumer.consume(one, arrival)))
            await asyncio.sleep(0.02)
    await asyncio.gather(*calls)


@far_away
async def test_each_entry_of_a_deep_session_takes_the_messages_of_all_calls(world: World) -> None:
    await serve(world, [message(n) for n in range(20 * CALLS)])

    assert messages_of(world) == [CALLS] * 20
    assert world.amounts() == list(range(1, 20 * CALLS + 1))
    turn_seconds = WRITE_SECONDS + SETTLE_SECONDS
    assert virtual_time.now() <= 20 * turn_seconds + ROUNDING


@far_away
async def test_two_halves_of_the_calls_become_one_again(world: World) -> None:
    half = CALLS // 2
    # The second half arrives while the first one is being written.
    begin_at = [*[0.0] * half, *[WRITE_SECONDS / 2] * half]
    await serve(world, [message(n) for n in range(20 * CALLS)], begin_at)

    assert messages_of(world) == [half, *[CALLS] * 19, half]
    assert world.amounts() == list(range(1, 20 * CALLS + 1))


@far_away
async def test_a_busy_host_that_hands_over_one_by_one_gets_an_entry_a_round(world: World) -> None:
    await serve_in_rounds(world, [message(n) for n in range(10 * CALLS)], 10)

    # In the first rounds it is learnt how long the pauses are, and how many calls there are.
    assert messages_of(world)[-4:] == [CALLS] * 4
    assert world.amounts() == list(range(1, 10 * CALLS + 1))


@far_away
async def test_messages_that_come_one_after_the_other_wait_for_nobody(world: World) -> None:
    for n in range(10):
        assert isinstance(await world.east.consumer.consume(message(n), n), Processed)

    assert virtual_time.now() <= 10 * WRITE_SECONDS + ROUNDING


@far_away
async def test_the_message_after_the_last_of_many_waits_in_vain_for_moments(world: World) -> None:
    await serve(world, [message(n) for n in range(CALLS)])
    began = virtual_time.now()
    await world.east.consumer.consume(message(CALLS), CALLS)
    waited = virtual_time.now() - began - WRITE_SECONDS
    assert 0 < waited <= LINGER_SECONDS_MAX + ROUNDING

    began = virtual_time.now()
    await world.east.consumer.consume(message(CALLS + 1), CALLS + 1)
    assert virtual_time.now() - began <= WRITE_SECONDS + ROUNDING


@far_away
async def test_a_new_session_whose_calls_begin_in_no_order_reads_nothing(world: World) -> None:
    calls = []
    for n in (5, 2, 1, 4, 3, 0):
        calls += begin(world.east, [message(n)])
        await asyncio.sleep(LINGER_SECONDS_MIN / 10)
    await asyncio.gather(*calls)

    assert messages_of(world) == [6]
    assert world.amounts() == [1, 2, 3, 4, 5, 6]
    assert world.journal.fault_plan.calls["head"] == 0


@far_away
async def test_calls_behind_a_gap_that_come_by_and_by_ask_the_store_together(world: World) -> None:
    calls = []
    for n in range(1, 9):
        calls += begin(world.east, [message(n)])
        await asyncio.sleep(8 * LINGER_SECONDS_MIN)
    reads = world.journal.fault_plan.calls["head"]
    await world.east.consumer.consume(message(0), 0)
    await asyncio.gather(*calls)

    assert reads <= 2
    assert world.amounts() == list(range(1, 10))


@far_away
async def test_a_region_that_comes_second_does_not_wait_for_more_copies(world: World) -> None:
    await serve(world, [message(n) for n in range(CALLS)])
    began = virtual_time.now()
    assert set(await take(world.west, *(message(n) for n in range(1, CALLS)))) == {AlreadyDone()}
    assert virtual_time.now() == began
