"""A handler calls the outside, with a claim or as often as it likes: each call has one key."""

import json
from dataclasses import replace

import pytest

from shared.domain.errors import OutcomeUnknown
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Conflicting,
    Faulted,
    Parked,
    PassedThrough,
    Processed,
)
from shared.ports import SessionNeed
from shared.testkit.injected_faults import CallFault
from tests.business import (
    ATTEMPTS,
    LEASE_OVER,
    BusinessWorld,
    Outside,
    business,
    claimed,
    dies,
    failing,
    healthy,
    nothing,
    payment,
    swept,
)
from tests.crashes import redelivered, sent, worlds
from tests.world import REGIONS, RETRY, SKIP, World, message, take

# When an effectful handler fails, it is tried again; then its message is a fault.

PAY = payment(0)
EDIT = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"amount":40}')


def closed_for(times: int) -> BusinessWorld:
    """A world whose outside fails this often after it took the payment."""
    world = BusinessWorld()

    async def fail() -> None:
        if len(world.outside.asked) <= times:
            raise ConnectionError("closed")

    world.outside.after = fail
    return world


async def halted(*behind: int) -> BusinessWorld:
    """A payment that failed for good, and bills that wait behind it."""
    world = closed_for(ATTEMPTS)
    assert isinstance(await world.east.consumer.consume(PAY), Faulted)
    bills = [message(sequence, kind="account.bill") for sequence in behind]
    assert await take(world.west, *bills) == [Parked()] * len(bills)
    world.outside.after = nothing
    return world


@pytest.mark.parametrize("times", range(ATTEMPTS))
async def test_it_is_tried_again_with_the_same_key(times: int) -> None:
    world = closed_for(times)

    assert isinstance(await world.east.consumer.consume(PAY), Processed)

    assert (world.amounts(), len(world.outside.asked)) == ([1], times + 1)
    assert len(world.outside.keys[1]) == 1
    assert world.outputs("west") == (await healthy(PAY)).outputs("west")


async def test_it_is_a_fault_after_its_attempts_and_a_copy_is_in_the_error_queue() -> None:
    world = await halted()

    (fault,), (report,) = world.entries(), world.reports()

    assert (fault["status"], fault["reason"]) == ("faulted", "ConnectionError: closed")
    assert fault["message"]["body"].encode() == PAY.body
    assert len(world.outside.asked) == ATTEMPTS
    assert report["reason"] == "ConnectionError: closed"
    assert (report["message"]["id"], report["message"]["body"].encode()) == (PAY.id, PAY.body)
    assert await world.journal.sessions(SessionNeed.RESOLUTION, limit=9) == ["acc-7"]
    assert await world.journal.sessions(SessionNeed.TAKE_OVER, limit=9) == []


async def test_a_body_that_is_not_the_model_is_not_tried_again(world: BusinessWorld) -> None:
    outcome = await world.east.consumer.consume(replace(PAY, body=b'{"amount":"much"}'))

    assert isinstance(outcome, Faulted)
    assert world.clock.now() == 0
    assert world.outside.asked == []


async def test_a_type_that_skips_goes_on() -> None:
    world = closed_for(99)

    outcomes = await take(world.east, message(0, kind="account.tip"), message(1))

    assert [type(outcome) for outcome in outcomes] == [Faulted, Processed]
    assert (world.amounts(), len(world.outside.keys[1])) == ([2], 1)


@pytest.mark.parametrize(
    ("decision", "amounts"), [(RETRY, [1, 2, 3]), (EDIT, [40, 2, 3]), (SKIP, [2, 3])]
)
async def test_each_resolution_drains_what_waited_in_order_and_asks_with_the_first_key(
    decision: ResolutionRequest, amounts: list[int]
) -> None:
    world = await halted(2, 1)

    resolved = await world.west.resolver.resolve("acc-7", decision)

    assert resolved.resolution is not None
    assert (resolved.resolution.action, resolved.resolution.who) == (decision.action, "Ada")
    assert world.amounts() == amounts
    assert len(world.outside.asked) == ATTEMPTS + (decision is not SKIP)
    assert len(world.outside.keys[1]) == 1
    assert len(world.outputs("east")) == len(amounts)
    assert world.outputs("east") == world.outputs("west")


@pytest.mark.parametrize("decision", [RETRY, EDIT, SKIP])
@pytest.mark.parametrize("region", REGIONS)
async def test_a_late_copy_is_a_duplicate(region: str, decision: ResolutionRequest) -> None:
    for later in ([], [1], [1, 2, 3]):
        world = await halted(*later)
        await world.west.resolver.resolve("acc-7", decision)
        before = len(world.entries()), len(world.outside.asked)

        for worker in (world.worker(region), getattr(world, region)):
            copy, other = await take(worker, PAY, replace(PAY, body=b'{"amount":40}'))
            assert copy == AlreadyDone()
            assert isinstance(other, Conflicting)

        assert (len(world.entries()), len(world.outside.asked)) == before


async def test_a_retry_that_fails_again_halts_again_and_loses_nothing() -> None:
    world = await halted(1)
    world.outside.after = failing(ConnectionError("still closed"))
    entry = await world.east.resolver.resolve("acc-7", RETRY)
    assert entry.reason == "ConnectionError: still closed"
    assert world.amounts() == []

    world.outside.after = nothing
    await world.west.resolver.resolve("acc-7", EDIT)
    assert world.amounts() == [40, 2]


@pytest.mark.parametrize("decision", [RETRY, EDIT])
@pytest.mark.parametrize(
    ("operation", "how"),
    [
        ("append", CallFault.KILLED_AFTER),
        ("replace", CallFault.KILLED_BEFORE),
        ("replace", CallFault.KILLED_AFTER),
        ("send.east", CallFault.KILLED_AFTER),
    ],
)
async def test_a_resolver_that_dies_over_it_leaves_it_to_the_sweep(
    decision: ResolutionRequest, operation: str, how: CallFault
) -> None:
    quiet, world = await halted(1), await halted(1)
    await quiet.east.resolver.resolve("acc-7", decision)

    await dies(world, PAY, operation, how, lambda: world.east.resolver.resolve("acc-7", decision))
    world.clock.seconds += LEASE_OVER
    await swept(world)

    assert world.amounts() == quiet.amounts()
    for region in REGIONS:
        assert dict.fromkeys(world.outputs(region)) == dict.fromkeys(quiet.outputs(region))
    assert len(world.outside.keys[1]) == 1
    resolution = next(e["resolution"] for e in world.entries() if "resolution" in e)
    assert resolution == {"action": decision.action, "who": "Ada", "why": decision.why, "at": 0}


async def test_a_handler_that_was_taken_away_leaves_a_fault_that_says_so() -> None:
    world = await claimed(LEASE_OVER)
    del world.handlers.by_type["account.pay"]

    outcome = await world.west.consumer.consume(PAY)

    assert isinstance(outcome, Faulted)
    assert str(outcome.entry.reason).startswith("no handler for type 'account.pay'")


# When a handler is idempotent, it runs any number of times, without a journal or for its number.

NOTE = replace(message(0, kind="account.note"), number=None)
NUMBERED = message(1, kind="account.note")


async def test_without_a_number_it_touches_no_journal(world: BusinessWorld) -> None:
    assert await world.east.consumer.consume(NOTE) == PassedThrough()

    assert dict(world.journal.fault_plan.calls) == {}
    assert len(world.outside.asked) == 1
    (output,) = world.outputs("east")
    assert world.outputs("west") == [output]
    assert json.loads(output[1]) == {"text": "told 1"}


async def test_its_outputs_are_sent_before_it_is_settled(world: BusinessWorld) -> None:
    with world.without(*REGIONS):
        for arriving in (NOTE, replace(NOTE, body=b"not json")):
            with pytest.raises(OutcomeUnknown):
                await world.east.consumer.consume(arriving)
    world.clock.seconds += 10

    assert await world.east.consumer.consume(NOTE) == PassedThrough()

    assert world.outputs("east") == world.outputs("west") == (await healthy(NOTE)).outputs("east")


async def test_every_copy_has_the_same_outputs_and_keys(world: BusinessWorld) -> None:
    for region in (*REGIONS, *REGIONS):
        await world.worker(region).consumer.consume(NOTE)

    assert sent(world, "east") == sent(world, "west") == (await healthy(NOTE)).outputs("east")
    assert len(world.outside.asked) == 4
    assert len(world.outside.keys[1]) == 1


async def test_it_needs_no_time_and_is_never_too_old() -> None:
    old = replace(NOTE, time="2013-01-01T05:17:00Z")

    assert await BusinessWorld().east.consumer.consume(old) == PassedThrough()


async def test_a_failure_goes_to_the_error_queue_after_its_attempts(world: BusinessWorld) -> None:
    world.outside.after = failing(ConnectionError("closed"))

    outcome = await world.east.consumer.consume(NOTE)

    assert outcome == PassedThrough("ConnectionError: closed")
    assert len(world.outside.asked) == 2
    (report,) = world.reports()
    assert (report["reason"], report["message"]["id"]) == ("ConnectionError: closed", NOTE.id)
    assert world.entries() == []


async def test_with_a_number_it_is_recorded_and_leaves_the_state_of_its_session_alone() -> None:
    world = await healthy(message(0), NUMBERED, message(2))

    assert await world.west.consumer.consume(NUMBERED) == AlreadyDone()

    assert (len(world.outside.asked), world.amounts()) == (1, [1, 3])
    assert len(world.outputs("east")) == len(world.outputs("west")) == 1


async def test_it_runs_without_a_claim_and_again_when_its_worker_died() -> None:
    world, first = BusinessWorld(), replace(NUMBERED, number=message(0).number)
    await dies(world, first, "append", CallFault.KILLED_BEFORE)

    assert isinstance(await world.west.consumer.consume(first), Processed)

    assert len(world.outside.asked) == 2
    assert len(world.outside.keys[2]) == 1
    assert world.outputs("east") == world.outputs("west")


async def test_with_a_number_a_failure_halts_like_any_other() -> None:
    world = await healthy(message(0))
    world.outside.after = failing(ConnectionError("closed"))

    assert isinstance(await world.east.consumer.consume(NUMBERED), Faulted)

    assert len(world.outside.asked) == 2


async def test_any_call_can_go_wrong_in_any_way() -> None:
    outside = Outside()

    async def work(world: World) -> None:
        await redelivered(world, message(0), NUMBERED, NOTE, payment(2))
        await swept(world)

    faulty = worlds(work, business(outside))
    quiet = await anext(faulty)
    async for world in faulty:
        assert world.amounts() == [1, 3], world.fault_plan
        for region in REGIONS:
            assert sorted(sent(world, region)) == sorted(sent(quiet, region)), world.fault_plan
        assert await world.pending() == [], world.fault_plan
    assert {amount: len(keys) for amount, keys in outside.keys.items()} == {1: 1, 2: 1, 3: 1}
