"""Deliveries as the Functions host hands them to the triggers."""

from collections.abc import Mapping

import azure.functions as func
from azure.functions.servicebus import ServiceBusMessage

from shared.domain import wire
from shared.domain.message import Message


def delivery(
    body: bytes, properties: Mapping[str, object], count: int = 1, arrival: int = 0
) -> func.ServiceBusMessage:
    """Any delivery, the first unless told otherwise; its broker properties are not the sender's."""
    return ServiceBusMessage(
        body=body,
        application_properties=dict(properties),
        message_id="spoofed",
        session_id="spoofed",
        delivery_count=count,
        sequence_number=arrival,
        user_properties={},
    )


def delivery_of(sent: Message, count: int = 1, arrival: int = 0) -> func.ServiceBusMessage:
    """A message as it arrives."""
    return delivery(sent.body, wire.to_properties(sent), count, arrival)
