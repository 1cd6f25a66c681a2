"""What JMS sends for text cannot be bound: its deliveries end, and the sweep names its end."""

import json
from typing import Any

import pytest
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from local.testing.patience import until
from shared.adapters.service_bus import to_service_bus
from shared.domain import wire
from shared.domain.message import Message
from tests.e2e.stack import REGIONS, Stack, status

pytestmark = [pytest.mark.e2e, pytest.mark.proof]

SESSIONS = ("N001", "N002")
SETTINGS = {"LOCKSTEP_SWEEP_SCHEDULE": "*/2 * * * * *"}


def as_jms_sends_it(message: Message) -> AmqpAnnotatedMessage:
    """The same message with its body as an AMQP value."""
    return AmqpAnnotatedMessage(
        value_body=message.body.decode(),
        header=AmqpMessageHeader(),
        properties=AmqpMessageProperties(message_id=message.id, group_id=message.session),
        application_properties=dict[Any, Any](wire.to_properties(message)),
    )


async def test_it_becomes_a_fault_with_the_brokers_reason_and_what_follows_is_parked(
    stack: Stack,
) -> None:
    for region in REGIONS:
        connection = stack.cloud.contract["servicebus"][region]
        async with (
            ServiceBusClient.from_connection_string(connection) as client,
            client.get_queue_sender("lockstep") as sender,
        ):
            for session in SESSIONS:
                await sender.send_messages(as_jms_sends_it(status(session, 0)))
                await sender.send_messages(to_service_bus(status(session, 1), None))

    until(lambda: stack.left_in_queues() == 0, seconds=150, what="naming every end")

    for session in SESSIONS:
        ends = {entry["status"]: entry for entry in stack.entries()[session]}
        assert set(ends) == {"faulted", "parked"}
        assert "its body is an AMQP value" in ends["faulted"]["reason"]
        assert "MaxDeliveryCountExceeded" in ends["faulted"]["reason"]
        body = json.loads(ends["faulted"]["message"]["body"])
        assert body == json.loads(status(session, 0).body)
    for region in REGIONS:
        assert sum(stack.ended(f"servicebus.{region}", "abandon").values()) <= 2 * 750
