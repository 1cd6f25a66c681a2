"""A handler that may run any number of times: without a journal, or recorded for its number."""

import json
from dataclasses import replace

import pytest

from shared.domain.errors import OutcomeUnknown
from shared.engine.consume.outcomes import AlreadyDone, Faulted, PassedThrough, Processed
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from tests.business import Outside, business, dies, payment, swept, world_of
from tests.crashes import redelivered, sent, worlds
from tests.world import REGIONS, World, message

NOTE = replace(message(0, kind="account.note"), number=None)
NUMBERED = message(1, kind="account.note")


async def told() -> list[tuple[str, bytes]]:
    """What is sent when all goes well."""
    world = world_of(Outside())
    await world.east.consumer.consume(NOTE)
    return world.outputs("east")


async def test_without_a_number_it_touches_no_journal() -> None:
    outside = Outside()
    world = world_of(outside)

    assert await world.east.consumer.consume(NOTE) == PassedThrough()

    assert dict(world.journal.fault_plan.calls) == {}
    assert len(outside.asked) == 1
    (output,) = world.outputs("east")
    assert world.outputs("west") == [output]
    assert json.loads(output[1]) == {"text": "told 1"}


async def test_its_outputs_are_sent_before_it_is_settled() -> None:
    world = world_of(Outside())
    world.bus.unavailable.update(REGIONS)
    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(NOTE)
    world.bus.unavailable.clear()
    world.clock.seconds += 10

    assert await world.east.consumer.consume(NOTE) == PassedThrough()

    assert world.outputs("east") == world.outputs("west") == await told()


async def test_every_copy_has_the_same_outputs_and_keys() -> None:
    outside = Outside()
    world = world_of(outside)

    for region in (*REGIONS, *REGIONS):
        await world.worker(region).consumer.consume(NOTE)

    assert set(world.outputs("east")) == set(world.outputs("west")) == set(await told())
    assert len(outside.asked) == 4
    assert len(outside.keys[1]) == 1


@pytest.mark.parametrize("dark", REGIONS)
async def test_what_a_dark_region_misses_is_owed_to_it(dark: str) -> None:
    world = world_of(Outside())
    world.bus.unavailable.add(dark)
    assert await world.east.consumer.consume(NOTE) == PassedThrough()
    assert world.outputs(dark) == []
    world.bus.unavailable.clear()

    await swept(world)

    assert world.outputs("east") == world.outputs("west") == await told()
    assert await world.pending() == []


@pytest.mark.parametrize("fault", CALL_ERRORS)
async def test_a_debt_that_cannot_be_written_down_keeps_it_in_its_queue(fault: CallFault) -> None:
    world = world_of(Outside())
    world.bus.unavailable.add("east")
    world.journal.fault_plan.plan("add_pending", fault)
    await redelivered(world, NOTE)
    world.bus.unavailable.clear()

    await swept(world)

    assert sent(world, "east") == sent(world, "west") == await told()


async def test_it_needs_no_time_and_is_never_too_old() -> None:
    world = world_of(Outside())

    old = replace(NOTE, time="2013-01-01T05:17:00Z")

    assert await world.east.consumer.consume(old) == PassedThrough()


async def test_a_failure_goes_to_the_error_queue_after_its_attempts() -> None:
    outside = Outside()
    world = world_of(outside)

    async def fail() -> None:
        raise ConnectionError("closed")

    outside.after = fail

    outcome = await world.east.consumer.consume(NOTE)

    assert outcome == PassedThrough("ConnectionError: closed")
    assert len(outside.asked) == 2
    (east,), (west,) = (world.bus.messages(region, "errors") for region in REGIONS)
    assert east == west
    report = json.loads(east.body)
    assert (report["reason"], report["message"]["id"]) == ("ConnectionError: closed", NOTE.id)
    assert world.entries() == []


async def test_a_failure_whose_report_nobody_takes_stays_in_its_queue() -> None:
    world = world_of(Outside())
    world.bus.unavailable.update(REGIONS)

    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(replace(NOTE, body=b"not json"))


async def test_with_a_number_it_is_recorded_and_the_session_goes_on() -> None:
    outside = Outside()
    world = world_of(outside)
    for arriving in (message(0), NUMBERED, message(2)):
        assert isinstance(await world.east.consumer.consume(arriving), Processed)

    assert await world.west.consumer.consume(NUMBERED) == AlreadyDone()

    assert len(outside.asked) == 1
    assert len(world.outputs("east")) == len(world.outputs("west")) == 1


async def test_it_leaves_the_state_of_its_session_alone() -> None:
    world = world_of(Outside())
    for arriving in (message(0), NUMBERED, message(2)):
        await world.east.consumer.consume(arriving)

    assert world.amounts() == [1, 3]


async def test_it_runs_without_a_claim_and_again_when_its_worker_died() -> None:
    outside = Outside()
    world = world_of(outside)
    await dies(
        world, replace(NUMBERED, number=message(0).number), "append", CallFault.KILLED_BEFORE
    )

    outcome = await world.west.consumer.consume(replace(NUMBERED, number=message(0).number))

    assert isinstance(outcome, Processed)
    assert len(outside.asked) == 2
    assert len(outside.keys[2]) == 1
    assert world.outputs("east") == world.outputs("west")


async def test_with_a_number_a_failure_halts_like_any_other() -> None:
    outside = Outside()
    world = world_of(outside)

    async def fail() -> None:
        raise ConnectionError("closed")

    outside.after = fail
    await world.east.consumer.consume(message(0))

    assert isinstance(await world.east.consumer.consume(NUMBERED), Faulted)

    assert len(outside.asked) == 2


async def test_any_call_can_go_wrong_in_any_way() -> None:
    outside = Outside()

    async def work(world: World) -> None:
        await redelivered(world, message(0), NUMBERED, NOTE, payment(2))
        await swept(world)

    struck = worlds(work, business(outside))
    quiet = await anext(struck)
    async for world in struck:
        assert world.amounts() == [1, 3], world.fault_plan
        for region in REGIONS:
            assert sorted(sent(world, region)) == sorted(sent(quiet, region)), world.fault_plan
        assert await world.pending() == [], world.fault_plan
    assert {amount: len(keys) for amount, keys in outside.keys.items()} == {1: 1, 2: 1, 3: 1}
