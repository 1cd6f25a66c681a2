"""The messages of every measurement: statuses of aircraft, 1 KB each, the same for every system.

They are sent with plain azure-servicebus, numbered as a producer would, so nobody pays for sending.
"""

import json
from collections.abc import Iterable
from itertools import chain

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from shared.domain import wire
from shared.domain.message import Message, Number, derive_id

BODY_BYTES = 1024
GROUP = "bench"


def make_statuses(session: str, numbers: range) -> list[Message]:
    return [make_status(session, n) for n in numbers]


def make_status(session: str, n: int) -> Message:
    """Make the n-th status of an aircraft: it departs and arrives in turn."""
    event = {
        "status": ("departed", "arrived")[n % 2],
        "flight": f"UA{n // 2}",
        "origin": "EWR",
        "destination": "IAH",
        "at": f"2013-01-01T05:17:{n % 60:02d}",
        "delay_minutes": n,
    }
    # Blanks after the value are JSON too: the size is exact, whatever the handler's model allows.
    body = json.dumps(event).ljust(BODY_BYTES).encode()
    number = Number(GROUP, 0, n)
    return Message(derive_id(session, str(n)), session, "flight.status", body, number)


def send(connection: str, queue: str, sessions: Iterable[list[Message]]) -> None:
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender(queue) as sender,
    ):
        send_in_batches(sender, map(to_sdk_message, chain.from_iterable(sessions)))


def send_in_batches(sender: ServiceBusSender, messages: Iterable[ServiceBusMessage]) -> None:
    """Send in order, in as few batches as the size limit allows."""
    batch = sender.create_message_batch()
    for message in messages:
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            sender.send_messages(batch)
            batch = sender.create_message_batch()
            batch.add_message(message)
    sender.send_messages(batch)


def to_sdk_message(message: Message) -> ServiceBusMessage:
    return ServiceBusMessage(
        message.body,
        session_id=message.session,
        message_id=message.id,
        content_type=wire.CONTENT_TYPE,
        application_properties=dict(wire.to_properties(message).items()),
    )
