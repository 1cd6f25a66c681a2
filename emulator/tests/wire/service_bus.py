"""A namespace with one queue of each kind, for tests that talk to it through the real SDK."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)
from azure.servicebus._pyamqp.aio._client_async import AMQPClientAsync
from azure.servicebus._pyamqp.client import AMQPClient

from local.counters import Counters
from local.faults import Faults
from local.servicebus.config import (
    NamespaceConfig,
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
    subscription_path,
)
from local.servicebus.rules import CorrelationFilter, SubscriptionRule, SystemProperty
from local.servicebus.server import Namespace
from local.testing.patience import Patience, PatienceExhausted

SESSIONS = QueueConfig("flights", requires_session=True, lock_seconds=30, max_delivery_count=3)
HASTY = QueueConfig("hasty", requires_session=True, lock_seconds=1.0)
PLAIN = QueueConfig("parcels", lock_seconds=30, max_delivery_count=3)
SHORT = QueueConfig("short", lock_seconds=1.0, max_delivery_count=3)
MORTAL = QueueConfig("mortal", time_to_live_seconds=0.2, dead_letter_expired=True)
CROWD = QueueConfig("crowd", requires_session=True, max_delivery_count=2000)
UNIQUE = QueueConfig("unique", duplicate_window_seconds=600.0)
FORGETFUL = QueueConfig("forgetful", duplicate_window_seconds=0.5)
DEPARTED = SubscriptionRule(
    "departed", CorrelationFilter({SystemProperty.LABEL: "departed"}, {"late": True})
)
NEWS = TopicConfig(
    "news",
    (
        SubscriptionConfig(QueueConfig(subscription_path("news", "everything"))),
        SubscriptionConfig(QueueConfig(subscription_path("news", "departures")), (DEPARTED,)),
        SubscriptionConfig(
            QueueConfig(subscription_path("news", "by-flight"), True, max_delivery_count=3)
        ),
    ),
)
CONFIG = NamespaceConfig(
    "east", (SESSIONS, HASTY, PLAIN, SHORT, MORTAL, UNIQUE, FORGETFUL, CROWD), (NEWS,)
)
HURRIED = SimpleNamespace(
    time=time.time,
    time_ns=time.time_ns,
    monotonic=time.monotonic,
    sleep=lambda _: time.sleep(0.001),
)
SECONDS_MAX = 60.0  # longer than anything here takes on a machine with much else to do


@dataclass(frozen=True, slots=True)
class Bus:
    """A running namespace, a client of it, and what breaks and counts it."""

    namespace: Namespace
    client: ServiceBusClient
    faults: Faults
    counters: Counters

    @property
    def connection_string(self) -> str:
        return self.namespace.connection_string

    def send(self, queue: str, *bodies: str, session: str | None = None) -> None:
        """Send bodies one after the other."""
        with self.client.get_queue_sender(queue) as sender:
            for body in bodies:
                sender.send_messages(ServiceBusMessage(body, session_id=session))

    def receiver(
        self, queue: str, session: object = None, *, wait: float = SECONDS_MAX
    ) -> ServiceBusReceiver:
        """A receiver; on a session queue, of a session or of `NEXT_AVAILABLE_SESSION`."""
        return self.client.get_queue_receiver(queue, session_id=session, max_wait_time=wait)  # type: ignore[arg-type]

    def count(self, operation: str, status: str = "ok") -> float:
        """How often an operation ended in a status."""
        table = self.counters.snapshot().get("servicebus.east", {})
        return table.get(operation, {}).get(status, {}).get("count", 0)


@contextmanager
def hurried_client() -> Iterator[None]:
    """Let the client hurry where it only waits for itself.

    It sleeps 50 ms after each frame while a link opens, and up to a second for its keep-alive
    thread, or task, while one closes.
    """

    async def no_keep_alive(_: AMQPClientAsync) -> None:
        return

    with (
        patch.object(AMQPClient, "_keep_alive", lambda _: None),
        patch.object(AMQPClientAsync, "_keep_alive_async", no_keep_alive),
        patch("azure.servicebus._servicebus_receiver.time", HURRIED),
        patch("azure.servicebus._servicebus_sender.time", HURRIED),
    ):
        yield


@contextmanager
def running_bus(data_dir: Path | None = None, config: NamespaceConfig = CONFIG) -> Iterator[Bus]:
    """A namespace on a free port, and a client that does not retry."""
    faults, counters = Faults(), Counters()
    namespace = Namespace(config, port=0, faults=faults, counters=counters, data_dir=data_dir)
    namespace.start()
    try:
        with (
            hurried_client(),
            ServiceBusClient.from_connection_string(
                namespace.connection_string, retry_total=0
            ) as client,
        ):
            yield Bus(namespace, client, faults, counters)
    finally:
        namespace.stop()


def receive(receiver: ServiceBusReceiver, count: int = 1) -> list[ServiceBusReceivedMessage]:
    """Exactly so many messages, however many calls that takes; fails if they do not come."""
    received: list[ServiceBusReceivedMessage] = []
    patience = Patience(SECONDS_MAX)
    while len(received) < count:
        if patience.is_over():
            raise PatienceExhausted(f"{len(received)} of {count} messages came")
        received += receiver.receive_messages(count - len(received), max_wait_time=1)
    return received


def receive_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    """The next message; fails if none comes."""
    (message,) = receive(receiver)
    return message


__all__ = [
    "CONFIG",
    "NEXT_AVAILABLE_SESSION",
    "Bus",
    "hurried_client",
    "receive",
    "receive_one",
    "running_bus",
]
