"""The asynchronous SDK finds the same service."""

import asyncio
from collections.abc import Iterator

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from tests.wire.service_bus import Bus, running_bus

pytestmark = pytest.mark.wire
QUEUE = "flights"


@pytest.fixture(scope="module")
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


async def drain_one_session(client: ServiceBusClient) -> tuple[str, list[str]]:
    receiver = client.get_queue_receiver(QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5)
    async with receiver:
        messages = await receiver.receive_messages(3, max_wait_time=5)
        for message in messages:
            await receiver.complete_message(message)
        return str(receiver.session.session_id), [str(message) for message in messages]


async def test_sessions_are_drained_side_by_side_each_in_order(bus: Bus) -> None:
    sessions = [f"N{number}" for number in range(4)]
    async with ServiceBusClient.from_connection_string(bus.namespace.connection_string) as client:
        async with client.get_queue_sender(QUEUE) as sender:
            for body in ("departed", "delayed", "arrived"):
                await sender.send_messages(
                    [ServiceBusMessage(body, session_id=session) for session in sessions]
                )
        drained = await asyncio.gather(*(drain_one_session(client) for _ in sessions))

    assert dict(drained) == {key: ["departed", "delayed", "arrived"] for key in sessions}
    assert bus.namespace.depth(QUEUE)["active"] == 0


async def test_a_lock_is_renewed_and_a_wait_for_a_session_ends(bus: Bus) -> None:
    async with ServiceBusClient.from_connection_string(
        bus.namespace.connection_string, retry_total=0
    ) as client:
        async with client.get_queue_receiver(QUEUE, session_id="N9") as receiver:
            before = receiver.session.locked_until_utc
            after = await receiver.session.renew_lock()
        waiting = client.get_queue_receiver(
            QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.3
        )
        with pytest.raises(OperationTimeoutError):
            async with waiting:
                pass

    assert before is not None
    assert after > before


async def test_a_subscription_is_received_from_like_a_queue(bus: Bus) -> None:
    async with ServiceBusClient.from_connection_string(bus.namespace.connection_string) as client:
        async with client.get_topic_sender("news") as sender:
            await sender.send_messages(
                [
                    ServiceBusMessage("on time", subject="departed"),
                    ServiceBusMessage(
                        "late", subject="departed", application_properties={"late": True}
                    ),
                ]
            )
        bodies = {}
        for name, count in (("everything", 2), ("departures", 1)):
            async with client.get_subscription_receiver("news", name, max_wait_time=5) as receiver:
                messages = await receiver.receive_messages(count)
                for message in messages:
                    await receiver.complete_message(message)
                bodies[name] = [str(message) for message in messages]

    assert bodies == {"everything": ["on time", "late"], "departures": ["late"]}
