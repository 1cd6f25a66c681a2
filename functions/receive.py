"""The Service Bus trigger: messages through their session's journal."""

import logging
from collections.abc import Sequence
from itertools import groupby

# The worker library knows a batch by typing.List only.
from typing import List, assert_never  # noqa: UP035

import azure.functions as func

from shared.domain import wire
from shared.domain.errors import InvalidMessage
from shared.domain.message import Message
from shared.domain.reports import shorten
from shared.engine.build import Services
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Expired,
    Faulted,
    Outcome,
    Parked,
    PassedThrough,
    Processed,
    Refused,
)

log = logging.getLogger("lockstep.receive")

# The longest pause of a delivery that fails, well below the time that the host gives a function.
PAUSE_SECONDS_MAX = 120.0

type ReceivedMessage = func.ServiceBusMessage


def build_receive_blueprint(services: Services) -> func.Blueprint:
    """The trigger on this region's own namespace."""
    bp = func.Blueprint()
    if services.worker.policy.batches:
        add_batch_trigger(bp, services)
    else:
        add_trigger(bp, services)
    return bp


def add_trigger(bp: func.Blueprint, services: Services) -> None:
    """One message an invocation; many sessions side by side."""

    @bp.service_bus_queue_trigger(
        arg_name="message",
        queue_name="%LOCKSTEP_QUEUE%",
        connection=f"ServiceBus_{services.region}",
        is_sessions_enabled=True,
        # As text, the host would let fields of a JSON body overwrite the message's properties.
        data_type=func.DataType.BINARY,
    )
    async def receive(message: func.ServiceBusMessage) -> None:
        await receive_message(services, message)


def add_batch_trigger(bp: func.Blueprint, services: Services) -> None:
    """A batch of one session an invocation; the host takes one session at a time."""

    @bp.service_bus_queue_trigger(
        arg_name="messages",
        queue_name="%LOCKSTEP_QUEUE%",
        connection=f"ServiceBus_{services.region}",
        is_sessions_enabled=True,
        cardinality=func.Cardinality.MANY,
        data_type=func.DataType.BINARY,
    )
    async def receive(messages: List[func.ServiceBusMessage]) -> None:  # noqa: UP006 - see import
        await receive_batch(services, messages)


async def receive_message(services: Services, delivery: ReceivedMessage) -> None:
    """Consume one delivery. Returning settles it, raising abandons it, after a pause."""
    began = services.worker.clock.now()
    try:
        await services.readiness.require_regions()
        for _, message in await readable(services, [delivery]):
            await consume(services, delivery, message)
    except Exception:
        await pause(services, [delivery], began)
        raise


async def receive_batch(services: Services, deliveries: Sequence[ReceivedMessage]) -> None:
    """Consume a batch. Returning settles all of it, raising abandons all of it, after a pause."""
    began = services.worker.clock.now()
    try:
        await consume_batch(services, deliveries)
    except Exception:
        await pause(services, deliveries, began)
        raise


async def consume_batch(services: Services, deliveries: Sequence[ReceivedMessage]) -> None:
    """Give each message of a batch its outcome.

    The broker's batch is of one session, but what the messages themselves name is what counts.
    """
    await services.readiness.require_regions()
    parsed = await readable(services, deliveries)
    for (_, numbered), group in groupby(parsed, lambda pair: shared_by(pair[1])):
        pairs = list(group)
        if numbered:
            outcomes = await services.batches.consume([message for _, message in pairs])
            for (delivery, message), outcome in zip(pairs, outcomes, strict=True):
                await conclude(services, delivery, message, outcome)
        else:
            for delivery, message in pairs:
                await consume(services, delivery, message)


async def pause(services: Services, deliveries: Sequence[ReceivedMessage], began: float) -> None:
    """Wait inside a failed invocation, because the broker delivers again at once.

    Without it an error that stays spends all deliveries of a message in half a minute.
    """
    count = max(delivery.delivery_count or 1 for delivery in deliveries)
    clock = services.worker.clock
    # What a slow failure took counts, so that no invocation lasts longer than it has to.
    await clock.sleep(max(0.0, began + pause_seconds(count) - clock.now()))


def pause_seconds(delivery_count: int) -> float:
    """How long an invocation lasts at least that fails: twice as long with each delivery."""
    doublings = min(delivery_count - 1, 60)
    return min(float(2**doublings), PAUSE_SECONDS_MAX)


def shared_by(message: Message) -> tuple[str, bool]:
    """What messages taken together have in common: their session, and whether they are numbered."""
    return message.session, message.number is not None


async def readable(
    services: Services, deliveries: Sequence[ReceivedMessage]
) -> list[tuple[ReceivedMessage, Message]]:
    """The deliveries that are messages of ours, parsed; the others are rejected."""
    parsed: list[tuple[ReceivedMessage, Message]] = []
    for delivery in deliveries:
        try:
            parsed.append((delivery, parse(delivery)))
        except InvalidMessage as error:
            await reject(services, delivery, str(error))
    return parsed


async def consume(services: Services, delivery: ReceivedMessage, message: Message) -> None:
    try:
        outcome = await services.consumer.consume(message)
    except InvalidMessage as error:
        await reject(services, delivery, str(error))
    else:
        await conclude(services, delivery, message, outcome)


async def conclude(
    services: Services, delivery: ReceivedMessage, message: Message, outcome: Outcome
) -> None:
    """Log what became of a message; one that no journal takes goes to the error queue."""
    if isinstance(outcome, Conflicting | Expired):
        await reject(services, delivery, outcome.reason)
    else:
        log.info(describe(message, outcome))


async def reject(services: Services, delivery: ReceivedMessage, reason: str) -> None:
    properties = delivery.application_properties or {}
    body = delivery.get_body()
    report = await services.rejecter.reject(delivery.session_id, properties, body, reason)
    log.warning("rejected as %s: %s", report.id, shorten(reason))


def parse(delivery: ReceivedMessage) -> Message:
    """The message a delivery carries; raises InvalidMessage."""
    return wire.from_properties(delivery.application_properties or {}, delivery.get_body())


def describe(message: Message, outcome: Outcome) -> str:
    # Quoted, so that what a sender put into its names forges no line of the log.
    return f"{message.session!r} {message.id!r} {ending(outcome)}"


def ending(outcome: Outcome) -> str:
    match outcome:
        case Processed(entry):
            words = f"processed as entry {entry.position}"
        case AlreadyDone():
            words = "was done already"
        case Parked():
            words = "parked until its turn comes"
        case Claimed():
            words = "is being worked on; the journal keeps it"
        case Faulted(entry):
            words = f"faulted: {entry.reason}"
        case Refused(entry):
            words = f"refused: {entry.reason}"
        case Conflicting(reason) | Expired(reason):
            words = f"rejected: {reason}"
        case PassedThrough(fault):
            words = f"failed without a journal: {fault}" if fault else "passed through"
        case unexpected:
            assert_never(unexpected)
    return words
