"""The asynchronous SDK finds the same service."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    SessionCannotBeLockedError,
)

from wire.service_bus import SECONDS_MAX, Bus, running_bus

pytestmark = pytest.mark.wire
QUEUE = "flights"


@pytest.fixture(scope="module")
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


@pytest.fixture
async def client(bus: Bus) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(
        bus.namespace.connection_string, retry_total=0
    ) as client:
        yield client


async def send(client: ServiceBusClient, queue: str, *bodies: str) -> None:
    """Send bodies in one batch."""
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(body) for body in bodies])


async def receive_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """The next message; fails if none comes."""
    (message,) = await receive(receiver, 1)
    return message


async def receive(receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
    """Exactly so many messages, however many calls that takes; fails if they do not come."""
    received: list[ServiceBusReceivedMessage] = []
    while len(received) < count:
        more = await receiver.receive_messages(count - len(received), max_wait_time=SECONDS_MAX)
        assert more, f"only {len(received)} of {count} came"
        received += more
    return received


async def drain_one_session(client: ServiceBusClient) -> tuple[str, list[str]]:
    receiver = client.get_queue_receiver(
        QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SECONDS_MAX
    )
    async with receiver:
        messages = await receive(receiver, 3)
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
            async with client.get_subscription_receiver(
                "news", name, max_wait_time=SECONDS_MAX
            ) as receiver:
                messages = await receive(receiver, count)
                for message in messages:
                    await receiver.complete_message(message)
                bodies[name] = [str(message) for message in messages]

    assert bodies == {"everything": ["on time", "late"], "departures": ["late"]}


async def test_a_message_is_abandoned_deferred_dead_lettered_and_completed(
    bus: Bus, client: ServiceBusClient
) -> None:
    await send(client, "parcels", "a", "b")
    async with client.get_queue_receiver("parcels", max_wait_time=SECONDS_MAX) as receiver:
        await receiver.abandon_message(await receive_one(receiver))
        again = await receive_one(receiver)
        await receiver.defer_message(again)
        await receiver.dead_letter_message(await receive_one(receiver), reason="unreadable")
        number = again.sequence_number or 0
        (deferred,) = await receiver.receive_deferred_messages(number)
        await receiver.complete_message(deferred)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred_messages(number)
    async with client.get_queue_receiver(
        "parcels",
        sub_queue=ServiceBusSubQueue.DEAD_LETTER,
        receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE,
        max_wait_time=SECONDS_MAX,
    ) as receiver:
        dead = await receive_one(receiver)

    assert (str(again), again.delivery_count) == ("a", 1)
    assert (str(dead), dead.dead_letter_reason) == ("b", "unreadable")
    assert set(bus.namespace.depth("parcels").values()) == {0}


async def test_messages_are_scheduled_peeked_and_cancelled(
    bus: Bus, client: ServiceBusClient
) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    async with (
        client.get_queue_sender("parcels") as sender,
        client.get_queue_receiver("parcels") as receiver,
    ):
        numbers = await sender.schedule_messages(
            [ServiceBusMessage("a"), ServiceBusMessage("b")], tomorrow
        )
        peeked = await receiver.peek_messages(10)
        await sender.cancel_scheduled_messages(numbers)

    assert [str(message) for message in peeked] == ["a", "b"]
    assert [message.sequence_number for message in peeked] == numbers
    assert bus.namespace.depth("parcels")["scheduled"] == 0


async def test_a_session_keeps_a_state_and_has_one_holder(client: ServiceBusClient) -> None:
    async with client.get_queue_receiver(QUEUE, session_id="N7") as holder:
        await holder.session.set_state(b"gate 7")
        with pytest.raises(SessionCannotBeLockedError):
            async with client.get_queue_receiver(QUEUE, session_id="N7"):
                pass
    async with client.get_queue_receiver(QUEUE, session_id="N7") as holder:
        assert await holder.session.get_state() == b"gate 7"
        await holder.session.set_state(None)
        assert await holder.session.get_state() is None


async def test_errors_have_the_names_that_the_service_gives_them(
    bus: Bus, client: ServiceBusClient
) -> None:
    with pytest.raises(ServiceBusAuthenticationError):
        await send(client, "nowhere", "lost")
    with pytest.raises(MessageSizeExceededError):
        await send(client, "parcels", "x" * (1024 * 1024 + 1))
    wrong = bus.namespace.connection_string.replace("SAS_KEY_VALUE", "WRONG")
    async with ServiceBusClient.from_connection_string(wrong, retry_total=0) as stranger:
        with pytest.raises(ServiceBusAuthenticationError):
            await send(stranger, "parcels", "lost")
