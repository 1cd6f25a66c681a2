"""The write of the entry gets no answer: it is neither success nor failure until read back."""

import pytest

from shared.domain.errors import OutcomeUnknown
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.testkit.injected_faults import CallFault
from tests.world import World, message


async def test_an_applied_commit_is_recognised_as_our_own(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)

    outcome = await world.east.consumer.consume(message(0))

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1]
    assert world.journal.fault_plan.calls["append"] == 1


async def test_a_lost_commit_is_made_again_as_the_same_attempt(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.LOST, CallFault.LOST)

    outcome = await world.east.consumer.consume(message(0))

    assert isinstance(outcome, Processed)
    assert [entry["attempt"] for entry in world.entries()] == ["east-1/1"]


async def test_a_commit_never_answered_stays_in_the_queue_and_is_done_once(world: World) -> None:
    world.journal.fault_plan.plan("append", *[CallFault.LOST] * 6)
    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(message(0))

    await world.east.consumer.consume(message(0))

    assert world.amounts() == [1]


async def test_an_applied_commit_that_cannot_be_read_back_is_not_repeated(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)
    world.journal.fault_plan.plan("entry", CallFault.REFUSED)
    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(message(0))

    assert await world.east.consumer.consume(message(0)) == AlreadyDone()

    assert world.amounts() == [1]


async def test_a_lost_commit_is_made_again_though_the_store_refuses_for_a_while(
    world: World,
) -> None:
    world.journal.fault_plan.plan("append", CallFault.LOST, CallFault.REFUSED, CallFault.REFUSED)

    outcome = await world.east.consumer.consume(message(0))

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1]


async def test_the_outputs_of_an_unanswered_commit_are_those_of_an_answered_one(
    world: World,
) -> None:
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)
    await world.east.consumer.consume(message(0, kind="account.bill"))

    quiet = World()
    await quiet.east.consumer.consume(message(0, kind="account.bill"))

    assert world.outputs("east") == quiet.outputs("east") != []
    assert world.outputs("west") == quiet.outputs("west") != []
