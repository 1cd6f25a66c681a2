"""Messages of 1 KB through a session queue with azure-servicebus."""

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from bench.local.emulator import Emulator
from bench.local.measure import Row, measured

BODY = b"x" * 1024
BATCH_MESSAGES = 100
SESSION_MESSAGES = 1000  # messages of one session: sent, then received by one receiver
SEND, RECEIVE = "send, in batches of 100", "receive and complete one by one"


def pass_through(emulator: Emulator, total: int) -> list[Row]:
    """Send, receive and complete messages, session by session."""
    sending, receiving = Row(SEND), Row(RECEIVE)
    contract = emulator.contract
    connection = next(iter(contract["servicebus"].values()))
    queue = contract["queue"]
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for first in range(0, total, SESSION_MESSAGES):
            session, count = f"s{first}", min(SESSION_MESSAGES, total - first)
            with measured(sending, emulator, count):
                send(sender, session, count)
            receive(client, queue, session, count, receiving, emulator)
    return [sending, receiving]


def send(sender: ServiceBusSender, session: str, count: int) -> None:
    """Send messages of one session."""
    for start in range(0, count, BATCH_MESSAGES):
        size = min(BATCH_MESSAGES, count - start)
        sender.send_messages([ServiceBusMessage(BODY, session_id=session) for _ in range(size)])


def receive(
    client: ServiceBusClient, queue: str, session: str, count: int, row: Row, emulator: Emulator
) -> None:
    """Receive and complete them one by one.

    Opening and closing a receiver does not count: the SDK sleeps for half a second in each.
    """
    left = count
    with (
        client.get_queue_receiver(queue, session_id=session, max_wait_time=10) as receiver,
        measured(row, emulator, count),
    ):
        while left > 0:
            for message in receiver.receive_messages(min(BATCH_MESSAGES, left)):
                receiver.complete_message(message)
                left -= 1


def both(sending: Row, receiving: Row) -> Row:
    """What a message costs from end to end."""
    return Row(
        "send, receive and complete",
        receiving.count,
        sending.seconds + receiving.seconds,
        sending.client_cpu_seconds + receiving.client_cpu_seconds,
        sending.emulator_cpu_seconds + receiving.emulator_cpu_seconds,
    )
