"""Messages of 1 KB through a session queue, and items of 1 KB in a container, through the SDKs."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from operator import add
from typing import Any

from azure.cosmos import ContainerProxy
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.testing.children import read_cpu_seconds
from local.testing.cloud import CloudProcess

BODY = b"x" * 1024
BATCH_MESSAGES = 100
SESSION_MESSAGES = 1000  # messages of one session: sent, then received by one receiver
SEND, RECEIVE = "send, in batches of 100", "receive and complete one by one"
TEXT = "x" * 900  # an item of about 1 KB with its ids
SESSION_ITEMS = 1000
CREATE, READ = "point write (create)", "point read"
BATCH = "batch of a read and a create"
HEAD = f"{'':<38}{'per s':>9}{'client us':>12}{'emulator us':>12}{'emulator':>10}"


@dataclass(slots=True)
class OperationTiming:
    name: str
    count: int = 0
    seconds: float = 0.0
    client_cpu_seconds: float = 0.0
    emulator_cpu_seconds: float = 0.0

    def line(self) -> str:
        client, emulator = (
            spent / max(self.count, 1) * 1e6
            for spent in (self.client_cpu_seconds, self.emulator_cpu_seconds)
        )
        rate = self.count / self.seconds if self.seconds else 0.0
        both = self.client_cpu_seconds + self.emulator_cpu_seconds
        share = self.emulator_cpu_seconds / both if both else 0.0
        return f"{self.name:<38}{rate:>9.0f}{client:>12.0f}{emulator:>12.0f}{share:>10.0%}"


@contextmanager
def measure(row: OperationTiming, emulator: CloudProcess, count: int) -> Iterator[None]:
    emulator_before, client_before = read_cpu_seconds(emulator.child.pid), time.process_time()
    began = time.perf_counter()
    yield
    row.seconds += time.perf_counter() - began
    row.client_cpu_seconds += time.process_time() - client_before
    row.emulator_cpu_seconds += read_cpu_seconds(emulator.child.pid) - emulator_before
    row.count += count


def pass_through(emulator: CloudProcess, total: int) -> list[OperationTiming]:
    sending, receiving = OperationTiming(SEND), OperationTiming(RECEIVE)
    contract = emulator.contract
    connection = next(iter(contract["servicebus"].values()))
    queue = contract["queue"]
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_sender(queue) as sender,
    ):
        for first in range(0, total, SESSION_MESSAGES):
            session, count = f"s{first}", min(SESSION_MESSAGES, total - first)
            with measure(sending, emulator, count):
                for start in range(0, count, BATCH_MESSAGES):
                    size = range(min(BATCH_MESSAGES, count - start))
                    sender.send_messages(
                        [ServiceBusMessage(BODY, session_id=session) for _ in size]
                    )
            receive(client, queue, session, count, receiving, emulator)
    return [sending, receiving]


def receive(
    client: ServiceBusClient,
    queue: str,
    session: str,
    count: int,
    row: OperationTiming,
    emulator: CloudProcess,
) -> None:
    """Receive and complete them one by one.

    Opening and closing a receiver does not count: the SDK sleeps for half a second in each.
    """
    left = count
    with (
        client.get_queue_receiver(queue, session_id=session, max_wait_time=10) as receiver,
        measure(row, emulator, count),
    ):
        while left > 0:
            for message in receiver.receive_messages(min(BATCH_MESSAGES, left)):
                receiver.complete_message(message)
                left -= 1


def add_timings(sending: OperationTiming, receiving: OperationTiming) -> OperationTiming:
    times = map(add, astuple(sending)[2:], astuple(receiving)[2:])
    return OperationTiming("send, receive and complete", receiving.count, *times)


def access_items(emulator: CloudProcess, total: int) -> list[OperationTiming]:
    """Create items, read each by id and key, then append as many in batches."""
    with emulator.open_container(next(iter(emulator.contract["containers"]))) as container:
        container.read()  # what the client asks for once
        rows = [OperationTiming(CREATE), OperationTiming(READ), OperationTiming(BATCH)]
        for row, operation in zip(rows, (create, read, append), strict=True):
            with measure(row, emulator, total):
                for number in range(total):
                    operation(container, number)
    return rows


def make_item(session: str, number: int) -> dict[str, Any]:
    return {"id": f"{number:010}", "session": session, "owing": number % 2 == 0, "text": TEXT}


def name_session(number: int) -> str:
    return f"s{number // SESSION_ITEMS}"


def create(container: ContainerProxy, number: int) -> None:
    container.create_item(make_item(name_session(number), number))


def read(container: ContainerProxy, number: int) -> None:
    container.read_item(f"{number:010}", name_session(number))


def append(container: ContainerProxy, number: int) -> None:
    """Read the item before and create the next, both or neither."""
    session = name_session(number)
    fresh = make_item(session, number) | {"id": f"b{number:010}"}
    container.execute_item_batch(
        [("read", (f"{number:010}",)), ("create", (fresh,))], partition_key=session
    )


def turn_items_over(emulator: CloudProcess, total: int) -> None:
    """Create items, replace, find and delete them; how many there are stays the same."""
    with emulator.open_container(next(iter(emulator.contract["containers"]))) as container:
        for number in range(total):
            container.create_item(make_item("turned over", number))
            container.replace_item(
                f"{number:010}", make_item("turned over", number + 1) | {"id": f"{number:010}"}
            )
        found = list(
            container.query_items(
                "SELECT c.id FROM c WHERE c.owing = true ORDER BY c.id", partition_key="turned over"
            )
        )
        if len(found) != total // 2:
            raise RuntimeError(f"{len(found)} of {total // 2} items were found")
        for number in range(total):
            container.delete_item(f"{number:010}", "turned over")
