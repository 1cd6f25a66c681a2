"""A send fails for a while, for good, or gets no answer: its producer tries as its options say."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.domain.errors import (
    ContentConflict,
    FailureReason,
    InvalidOptions,
    LockstepError,
    Misconfigured,
    OutcomeUnknown,
    ProducerClosed,
)
from shared.domain.failures import BUS, Failure, make_error
from shared.domain.message import Message
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions, RetryMode, RetryOptions
from shared.publishing.producer import IdempotentProducer
from shared.testkit.injected_faults import CallFault
from shared.testkit.memory_bus import MemoryBus
from tests.loop_clock import LoopClock, in_world
from tests.world import World, sweep_later

SESSION = "acc-7"


def note(name: str, amount: int) -> SessionMessage:
    return SessionMessage(name, "account.add", f'{{"amount":{amount}}}')


def producer_of(world: World, retry: RetryOptions) -> IdempotentProducer:
    return IdempotentProducer(
        world.producer(), IdempotentProducerOptions("bank", retry_options=retry)
    )


def told(world: World, region: str) -> list[tuple[int, bytes]]:
    found = world.bus.messages(region, "in")
    return [(m.number.sequence, m.body) for m in found if m.number]


async def test_when_all_regions_fail_for_a_while_the_same_numbers_go_out_once(world: World) -> None:
    world.bus.fault_plan.plan("send.east", CallFault.LOST, CallFault.REFUSED)
    world.bus.fault_plan.plan("send.west", CallFault.LOST, CallFault.REFUSED)
    producer = producer_of(world, RetryOptions(maximum_retries=4))
    messages = [note("a", 1), note("b", 2)]

    await producer.send(messages, session=SESSION)

    assert [m.published_sequence_number for m in messages] == [0, 1]
    # 0.8, 1.6, 3.2 and 6.4 s at most: nobody asked for a longer pause.
    assert 0.8 <= world.clock.seconds <= 12.0
    await sweep_later(world)
    for region in ("east", "west"):
        assert told(world, region) == [(0, b'{"amount":1}'), (1, b'{"amount":2}')]


async def test_when_tries_are_spent_the_last_error_is_raised_and_nothing_is_numbered_anew(
    world: World,
) -> None:
    producer = producer_of(world, RetryOptions(2, 5.0, 60.0, mode=RetryMode.FIXED))
    message = note("a", 1)
    with world.without("east", "west"), pytest.raises(OutcomeUnknown) as raised:
        await producer.send([message], session=SESSION)

    assert raised.value.is_transient
    assert raised.value.reason is FailureReason.SERVICE_COMMUNICATION_PROBLEM
    assert message.published_sequence_number is None
    assert world.clock.seconds == pytest.approx(10.0)
    world.clock.seconds += 60.0
    await producer.send([message], session=SESSION)
    assert message.published_sequence_number == 0
    assert told(world, "east") == [(0, b'{"amount":1}')]


async def test_when_an_error_is_not_transient_nothing_is_tried_again(world: World) -> None:
    producer = producer_of(world, RetryOptions(maximum_retries=9))
    await producer.send([note("a", 1)], session=SESSION)

    with pytest.raises(ContentConflict) as raised:
        await producer.send([note("a", 2)], session=SESSION)

    assert not raised.value.is_transient
    assert world.clock.seconds == 0.0


async def test_when_every_queue_is_full_the_reason_says_so(world: World) -> None:
    full = make_error(Failure(BUS, "ServiceBusQuotaExceededError"), "80 GB")

    class Full(MemoryBus):
        async def send(self, *_: object, **__: object) -> None:
            raise full

    world.bus = Full(world.clock)
    producer = producer_of(world, RetryOptions())
    with pytest.raises(OutcomeUnknown, match="full") as raised:
        await producer.send([note("a", 1)], session=SESSION)

    assert raised.value.reason is FailureReason.QUOTA_EXCEEDED


class Silent(MemoryBus):
    """A bus that takes a message and answers only after an hour, so many times."""

    silences = 1

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        await super().send(region, queue, messages, delay_seconds=delay_seconds)
        if region == "west" or self.silences:
            self.silences -= region == "east"
            await asyncio.sleep(3600)


@in_world(lambda: World(clock=LoopClock()))
async def test_when_a_try_has_no_answer_in_time_the_next_one_sends_the_same(world: World) -> None:
    world.bus = Silent(world.clock)
    producer = producer_of(world, RetryOptions(maximum_retries=1, try_timeout_seconds=20.0))
    message = note("a", 1)

    await producer.send([message], session=SESSION)

    assert 20.0 < world.clock.seconds < 30.0
    assert message.published_sequence_number == 0
    # The second copy has the number of the first, by which it is known.
    assert told(world, "east") == [(0, b'{"amount":1}')] * 2


@in_world(lambda: World(clock=LoopClock()))
async def test_when_time_is_up_after_the_messages_are_safe_the_send_has_succeeded(
    world: World,
) -> None:
    producer = producer_of(world, RetryOptions(try_timeout_seconds=20.0))

    async def never(*_: object) -> None:
        await asyncio.sleep(3600)

    world.journal.acknowledge = never  # type: ignore[method-assign, assignment]
    message = note("a", 1)
    published = await producer.send([message], session=SESSION)

    assert message.published_sequence_number == 0
    assert [m.id for m in published.messages] == ["a"]


def test_delays_double_up_to_their_longest_or_stay() -> None:
    growing, fixed = RetryOptions(9, 0.8, 5.0), RetryOptions(9, 2.0, mode=RetryMode.FIXED)

    assert [growing.delay_after(n) for n in range(1, 6)] == [0.8, 1.6, 3.2, 5.0, 5.0]
    assert growing.delay_after(10_000) == 5.0
    assert [fixed.delay_after(n) for n in (1, 2, 9)] == [2.0] * 3


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"maximum_retries": -1}, "maximum_retries"),
        ({"maximum_retries": 101}, "maximum_retries"),
        ({"delay_seconds": -0.1}, "delay_seconds"),
        ({"maximum_delay_seconds": float("nan")}, "maximum_delay_seconds"),
        ({"try_timeout_seconds": float("inf")}, "try_timeout_seconds"),
    ],
)
def test_impossible_options_are_refused_by_name(options: dict[str, float], named: str) -> None:
    with pytest.raises(InvalidOptions, match=named):
        RetryOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "reason", "is_transient"),
    [
        (ProducerClosed("x"), FailureReason.CLIENT_CLOSED, False),
        (Misconfigured("x"), FailureReason.GENERAL_ERROR, False),
        (
            make_error(Failure(BUS, "MessageSizeExceededError"), ""),
            FailureReason.MESSAGE_SIZE_EXCEEDED,
            False,
        ),
        (
            make_error(Failure(BUS, "MessagingEntityNotFoundError"), ""),
            FailureReason.RESOURCE_NOT_FOUND,
            False,
        ),
        (
            make_error(Failure(BUS, "ServiceBusServerBusyError"), ""),
            FailureReason.SERVICE_BUSY,
            True,
        ),
        (make_error(Failure(BUS, None), ""), FailureReason.SERVICE_TIMEOUT, True),
    ],
)
def test_each_error_says_its_reason_and_whether_it_passes(
    error: LockstepError, reason: FailureReason, is_transient: bool
) -> None:
    assert (error.reason, error.is_transient) == (reason, is_transient)
