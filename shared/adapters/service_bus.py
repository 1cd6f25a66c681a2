"""The bus over azure-servicebus: one client per region, a few senders per queue."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core.exceptions import AzureError
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from shared.domain.errors import InvalidMessage, OutcomeUnknown
from shared.domain.message import Message
from shared.domain.wire import CONTENT_TYPE, to_properties

# A sender does one thing at a time; a few of them hide the round trip.
SENDERS_PER_QUEUE = 4
# The engine keeps what an unavailable region misses; retrying for long here would only hide that.
RETRIES = 1
# The SDK waits for a broker's answer for ever, as long as the connection stands.
SEND_SECONDS_MAX = 10.0


class Namespace:
    """The client of one region's namespace, connected on first use."""

    def __init__(
        self, *, connection_string: str | None, endpoint: str | None, client_id: str | None
    ) -> None:
        self.connection_string = connection_string
        self.endpoint = endpoint
        self.client_id = client_id
        self.client: ServiceBusClient | None = None
        self.credential: DefaultAzureCredential | None = None
        self.idle: defaultdict[str, list[ServiceBusSender]] = defaultdict(list)
        self.turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(SENDERS_PER_QUEUE)
        )

    @asynccontextmanager
    async def sender(self, queue: str) -> AsyncIterator[ServiceBusSender]:
        """Borrow a sender; one that failed is closed, not given back."""
        async with self.turns[queue]:
            sender = self.idle[queue].pop() if self.idle[queue] else self.new_sender(queue)
            try:
                yield sender
            except BaseException:
                with suppress(AzureError, OSError, ValueError):
                    await sender.close()
                raise
            self.idle[queue].append(sender)

    def new_sender(self, queue: str) -> ServiceBusSender:
        """A sender that connects when it is first used."""
        if self.client is None:
            self.client = self.new_client()
        return self.client.get_queue_sender(queue)

    def new_client(self) -> ServiceBusClient:
        if self.connection_string is not None:
            return ServiceBusClient.from_connection_string(
                self.connection_string, retry_total=RETRIES, retry_backoff_factor=0.1
            )
        self.credential = DefaultAzureCredential(managed_identity_client_id=self.client_id)
        return ServiceBusClient(
            self.endpoint or "", self.credential, retry_total=RETRIES, retry_backoff_factor=0.1
        )

    async def close(self) -> None:
        """Close every sender and the client; the next use connects again."""
        senders = [sender for idle in self.idle.values() for sender in idle]
        self.idle.clear()
        for closable in (*senders, self.client, self.credential):
            if closable is not None:
                with suppress(AzureError, OSError):
                    await closable.close()
        self.client, self.credential = None, None


class ServiceBus:
    """See ports.Bus."""

    def __init__(
        self, namespaces: Mapping[str, Namespace], *, send_seconds_max: float = SEND_SECONDS_MAX
    ) -> None:
        self.namespaces = namespaces
        self.send_seconds_max = send_seconds_max

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """See Bus.send: as few batches as the size limit allows, one session in each.

        A send that has no answer after `send_seconds_max` is an unknown outcome as well.
        """
        visible_at = scheduled_time(delay_seconds)
        copies = [to_service_bus(message, visible_at) for message in messages]
        try:
            async with (
                self.namespaces[region].sender(queue) as sender,
                asyncio.timeout(self.send_seconds_max),
            ):
                await send_in_batches(sender, copies)
        except MessageSizeExceededError as error:
            raise InvalidMessage(f"a message is too large for {queue!r}") from error
        except (AzureError, TimeoutError, OSError, ValueError) as error:
            raise OutcomeUnknown(f"sending to {region} failed: {error}") from error

    async def close(self) -> None:
        """Close every namespace."""
        for namespace in self.namespaces.values():
            await namespace.close()


async def send_in_batches(sender: ServiceBusSender, copies: Sequence[ServiceBusMessage]) -> None:
    """Send in order; a batch that is full goes out before the next is begun."""
    batch = await sender.create_message_batch()
    for copy in copies:
        try:
            batch.add_message(copy)
        except MessageSizeExceededError:
            if not len(batch):
                raise
            await sender.send_messages(batch)
            batch = await sender.create_message_batch()
            batch.add_message(copy)
    await sender.send_messages(batch)


def scheduled_time(delay_seconds: float) -> datetime | None:
    """When a delayed copy becomes visible; None for at once."""
    return datetime.now(UTC) + timedelta(seconds=delay_seconds) if delay_seconds > 0 else None


def to_service_bus(message: Message, visible_at: datetime | None) -> ServiceBusMessage:
    """A message as the SDK wants it. Identity is in the application properties, see domain.wire."""
    return ServiceBusMessage(
        message.body,
        application_properties=dict[Any, Any](to_properties(message)),
        content_type=CONTENT_TYPE,
        message_id=message.id,
        session_id=message.session,
        scheduled_enqueue_time_utc=visible_at,
    )
