"""The memory of a namespace does not grow with the messages that pass through it."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

from wire.service_bus import hurried_client
from wire.service_bus_process import serving_bus

pytestmark = [pytest.mark.wire, pytest.mark.proof]
QUEUE = "crowd"
BODY = b"x" * 1024
WARM_UP_SESSIONS, SESSIONS, MESSAGES, AT_ONCE = 8, 40, 500, 100
GROWTH_BYTES_MAX = 4 * 2**20  # a fifth of what passes through


def test_memory_stays_flat_while_twenty_thousand_messages_pass_through() -> None:
    with serving_bus() as bus, hurried_client():
        client = ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0)
        with client:
            for session in range(WARM_UP_SESSIONS):
                pass_through(client, f"early-{session}")
            before = bus.memory_bytes()
            for session in range(SESSIONS):
                pass_through(client, f"late-{session}")
            grown = bus.memory_bytes() - before
        left = bus.depth(QUEUE)

    assert set(left.values()) == {0}, left
    assert grown < GROWTH_BYTES_MAX


def pass_through(client: ServiceBusClient, session: str) -> None:
    """Send a session's messages; half of them are completed, the rest deleted on arrival."""
    with client.get_queue_sender(QUEUE) as sender:
        for _ in range(0, MESSAGES, AT_ONCE):
            sender.send_messages(
                [ServiceBusMessage(BODY, session_id=session) for _ in range(AT_ONCE)]
            )
    for mode in (ServiceBusReceiveMode.PEEK_LOCK, ServiceBusReceiveMode.RECEIVE_AND_DELETE):
        receive_half(client, session, mode)


def receive_half(client: ServiceBusClient, session: str, mode: ServiceBusReceiveMode) -> None:
    """Receive half of a session's messages."""
    left = MESSAGES // 2
    with client.get_queue_receiver(
        QUEUE, session_id=session, receive_mode=mode, max_wait_time=60
    ) as receiver:
        while left > 0:
            messages = receiver.receive_messages(min(left, AT_ONCE))
            assert messages
            left -= len(messages)
            if mode is ServiceBusReceiveMode.PEEK_LOCK:
                for message in messages:
                    receiver.complete_message(message)
