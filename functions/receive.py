"""The Service Bus session trigger: one message through its session's journal."""

import logging

import azure.functions as func

from shared.domain import wire
from shared.domain.message import Message
from shared.usecases.consume import (
    AlreadyDone,
    Consumer,
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
        await receive_message(services.consumer, message)

    return bp


async def receive_message(consumer: Consumer, delivery: func.ServiceBusMessage) -> None:
    """Consume one delivery. Returning settles the message, raising abandons it."""
    message = parse(delivery)
    log.info(describe(message, await consumer.consume(message)))


def parse(delivery: func.ServiceBusMessage) -> Message:
    """The message a delivery carries; raises InvalidMessage."""
    return wire.from_properties(delivery.application_properties or {}, delivery.get_body())


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
