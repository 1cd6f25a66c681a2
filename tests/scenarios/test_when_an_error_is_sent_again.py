"""A rejected delivery is sent again: once, whoever presses where, and whatever fails meanwhile."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from shared.domain.errors import InvalidBody, LockstepError, NotRepeatable
from shared.domain.message import Message
from shared.domain.wire import to_properties
from shared.engine.build import Services
from shared.engine.operate.error_queue import QueuedReport, RepeatRequest
from shared.engine.publish.ingest import KEY_SECONDS
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.world import DELAY_SECONDS, World, message

STRAY = message(0, session="acc-7")


@pytest.fixture
def world() -> World:
    return World()


async def reject(
    world: World, delivery: Message = STRAY, body: bytes | None = None
) -> QueuedReport:
    """A delivery that the journal did not take, as the error queue has it."""
    said = dict[str, object](to_properties(delivery))
    await world.east.rejecter.reject(delivery.session, said, delivery.body, "no time")
    # The other region sees its copy later.
    world.clock.seconds += DELAY_SECONDS
    (report,) = await world.east.errors.browse(limit=10)
    return report


def request_for(report: QueuedReport, who: str = "Ada") -> RepeatRequest:
    queued = report.queued
    return RepeatRequest(queued.session, queued.id, queued.sequence, who, "its sender is mended")


def sent(world: World, region: str = "east") -> list[Message]:
    return world.bus.messages(region, "in")


async def test_it_is_numbered_and_recorded(world: World) -> None:
    report = await reject(world)

    message_sent = await world.east.errors.send_again(request_for(report))

    assert [one.id for one in sent(world)] == [message_sent.id]
    assert (message_sent.session, message_sent.type, message_sent.body) == (
        STRAY.session,
        STRAY.type,
        STRAY.body,
    )
    assert message_sent.number is not None
    (shown,) = await world.east.errors.browse(limit=10)
    assert shown.repetition is not None
    assert (shown.repetition.who, shown.repetition.is_done) == ("Ada", True)


async def test_pressed_in_both_regions_at_once_it_is_one_message(world: World) -> None:
    report = await reject(world)

    async def press(worker: Services, who: str) -> object:
        try:
            return await worker.errors.send_again(request_for(report, who))
        except NotRepeatable as error:
            return error

    await asyncio.gather(press(world.east, "Ada"), press(world.west, "Bob"))

    assert len({(one.id, one.number) for one in sent(world)}) == 1
    with pytest.raises(NotRepeatable, match="has sent it again before"):
        await world.west.errors.send_again(request_for(report, "Eve"))


async def test_of_two_edits_only_the_first_is_sent(world: World) -> None:
    report = await reject(world)
    edited = replace(request_for(report), body=b'{"amount":1}')
    await world.east.errors.send_again(edited)

    for other in (replace(edited, body=b'{"amount":2}'), replace(edited, to="acc-8")):
        with pytest.raises(NotRepeatable, match="Ada decided otherwise before"):
            await world.west.errors.send_again(other)

    assert [one.body for one in sent(world)] == [b'{"amount":1}']


@pytest.mark.parametrize("fault", list(CallFault))
@pytest.mark.parametrize(
    "call", ["repetition", "record_repetition", "save_ledger", "send.east", "end_repetition"]
)
async def test_when_any_call_fails_pressing_again_finishes_it(
    world: World, call: str, fault: CallFault
) -> None:
    report = await reject(world)
    world.journal.fault_plan.plan(call, fault)
    world.bus.fault_plan.plan(call, fault)

    for region in ("east", "west", "east"):
        with suppress(LockstepError, ProcessKilled):
            await world.worker(region).errors.send_again(request_for(report))

    copies = [*sent(world), *sent(world, "west")]
    assert len({(one.id, one.number) for one in copies}) == 1
    (shown,) = await world.east.errors.browse(limit=10)
    assert shown.repetition is not None
    assert shown.repetition.is_done


async def test_what_was_begun_a_day_ago_is_not_sent_unseen(world: World) -> None:
    report = await reject(world)
    world.journal.fault_plan.plan("end_repetition", CallFault.REFUSED)
    with pytest.raises(LockstepError):
        await world.east.errors.send_again(request_for(report))
    before = len(sent(world))

    world.clock.seconds += KEY_SECONDS
    with pytest.raises(NotRepeatable, match="nobody knows any more"):
        await world.east.errors.send_again(request_for(report))

    assert len(sent(world)) == before


async def test_what_no_handler_would_take_is_refused_before_it_is_recorded(world: World) -> None:
    report = await reject(world)

    with pytest.raises(InvalidBody):
        await world.east.errors.send_again(replace(request_for(report), body=b'{"amount":"x"}'))
    with pytest.raises(NotRepeatable, match="any more"):
        await world.east.errors.send_again(replace(request_for(report), sequence=99))

    await world.east.errors.send_again(request_for(report))
    assert len(sent(world)) == 1


async def test_a_fault_is_decided_about_in_its_session(world: World) -> None:
    await world.east.consumer.consume(message(0, session="acc-1", kind="account.burn"))
    (report,) = await world.east.errors.browse("acc-1", limit=10)

    with pytest.raises(NotRepeatable, match="decided about in its session"):
        await world.east.errors.send_again(request_for(report))
