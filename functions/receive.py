"""The Service Bus trigger: messages through their session's journal."""

import logging
from typing import assert_never

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
    """The trigger on this region's own namespace: many sessions, many messages of each at once."""
    bp = func.Blueprint()

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

    return bp


async def receive_message(services: Services, delivery: ReceivedMessage) -> None:
    """Consume one delivery. Returning settles it, raising abandons it, after a pause."""
    began = services.worker.clock.now()
    try:
        await services.readiness.require_regions()
        await consume(services, delivery)
    except Exception:
        await pause(services, delivery, began)
        raise


async def pause(services: Services, delivery: ReceivedMessage, began: float) -> None:
    """Wait inside a failed invocation, because the broker delivers again at once.

    Without it an error that stays spends all deliveries of a message in half a minute.
    """
    clock = services.worker.clock
    seconds = pause_seconds(delivery.delivery_count or 1)
    # What a slow failure took counts, so that no invocation lasts longer than it has to.
    await clock.sleep(max(0.0, began + seconds - clock.now()))


def pause_seconds(delivery_count: int) -> float:
    """How long an invocation lasts at least that fails: twice as long with each delivery."""
    doublings = min(delivery_count - 1, 60)
    return min(float(2**doublings), PAUSE_SECONDS_MAX)


async def consume(services: Services, delivery: ReceivedMessage) -> None:
    """Give the delivery its outcome, and log it; what no journal takes goes to the error queue."""
    try:
        message = wire.from_properties(delivery.application_properties or {}, delivery.get_body())
        # The host calls in no certain order; the broker's is that of these numbers.
        outcome = await services.gatherer.consume(message, delivery.sequence_number or 0)
    except InvalidMessage as error:
        await reject(services, delivery, str(error))
        return
    if isinstance(outcome, Conflicting | Expired):
        await reject(services, delivery, outcome.reason)
    else:
        log.info(describe(message, outcome))


async def reject(services: Services, delivery: ReceivedMessage, reason: str) -> None:
    properties = delivery.application_properties or {}
    body = delivery.get_body()
    report = await services.rejecter.reject(delivery.session_id, properties, body, reason)
    log.warning("rejected as %s: %s", report.id, shorten(reason))


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
