"""The Service Bus session trigger: one message through its session's journal."""

import logging

import azure.functions as func

from shared.domain import wire
from shared.domain.errors import InvalidMessage
from shared.domain.journal import require_number
from shared.domain.message import Message
from shared.usecases.consume import (
    AlreadyDone,
    Faulted,
    Outcome,
    Parked,
    Processed,
    Refused,
)
from shared.usecases.services import Services

log = logging.getLogger("lockstep.receive")


def blueprint(services: Services) -> func.Blueprint:
    """The trigger on this region's own namespace."""
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


async def receive_message(services: Services, delivery: func.ServiceBusMessage) -> None:
    """Consume one delivery. Returning settles it, raising abandons it."""
    try:
        message = parse(delivery)
    except InvalidMessage as error:
        await reject(services, delivery, str(error))
        return
    outcome = await services.consumer.consume(message)
    log.info(describe(message, outcome))


async def reject(services: Services, delivery: func.ServiceBusMessage, reason: str) -> None:
    """Put a delivery that is no message of ours into the error queue."""
    properties = delivery.application_properties or {}
    body = delivery.get_body()
    report = await services.rejecter.reject(delivery.session_id, properties, body, reason)
    log.warning("rejected as %s: %s", report.id, reason)


def parse(delivery: func.ServiceBusMessage) -> Message:
    """The numbered message a delivery carries; raises InvalidMessage."""
    message = wire.from_properties(delivery.application_properties or {}, delivery.get_body())
    require_number(message)
    return message


def describe(message: Message, outcome: Outcome) -> str:
    """One line for the log."""
    match outcome:
        case Processed(entry):
            return f"{message.session} {message.id} processed as entry {entry.position}"
        case AlreadyDone():
            return f"{message.session} {message.id} was done already"
        case Parked():
            return f"{message.session} {message.id} parked until its turn comes"
        case Faulted(entry):
            return f"{message.session} {message.id} faulted: {entry.reason}"
        case Refused(entry):
            return f"{message.session} {message.id} refused: {entry.reason}"
