"""The bus over azure-servicebus: one client per region, a few senders per queue."""

import asyncio
import json
import ssl
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

import certifi
from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.amqp import AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
)

from shared.domain.errors import Misconfigured, OutcomeUnknown, Unavailable
from shared.domain.failures import BUS, CREDENTIAL, Failure, make_error
from shared.domain.message import BODY_BYTES_MAX, Message
from shared.domain.wire import CONTENT_TYPE, PREFIX, PREFIXES, Property, to_properties
from shared.ports import Browsed, BrowsedMessage, DeadLetter, Telemetry

# A sender does one thing at a time; a few of them hide the round trip.
SENDERS_PER_QUEUE = 4
# The engine keeps what an unavailable region misses; retrying for long here would only hide that.
RETRIES = 1
# The SDK waits for a broker's answer for ever, as long as the connection stands.
SEND_SECONDS_MAX = 10.0
CLOSE_SECONDS_MAX = 5.0
# Of dead letters so many are locked at once: what is not reached comes again after its lock.
RECEIVED_AT_ONCE = 10
RECEIVE_WAIT_SECONDS = 1.0
# Sessions that are looked into are locked so many at first, each over a connection of its own.
OPENED_AT_ONCE = 10
# One look holds so many, and reads so much of them: whoever asks waits for it.
HELD_MAX = 300
PEEKED_AT_ONCE = 100
PEEKED_BYTES_MAX = 50 * 2**20
UNIX = datetime(1970, 1, 1, tzinfo=UTC)
SENT_AT = {f"{prefix}time" for prefix in PREFIXES}
# Keys as the SDK's own instrumentation writes them: it leaves alone what is there.
TRACE_PROPERTIES = (b"Diagnostic-Id", b"traceparent")
# One run of the sweep begins no dead letter after this time.
DEAD_LETTER_SECONDS_MAX = 10.0


@dataclass(eq=False, repr=False)
class Namespace:
    """The clients of one region's namespace, connected on first use.

    A send that fails in a way that may pass is tried again `retries` times.
    """

    connection_string: str | None
    endpoint: str | None
    client_id: str | None
    retries: int = RETRIES

    def __post_init__(self) -> None:
        # By how often they try again what failed.
        self.clients: dict[int, ServiceBusClient] = {}
        self.credential: DefaultAzureCredential | None = None
        self.closing: set[asyncio.Task[None]] = set()
        self.idle: defaultdict[str, list[ServiceBusSender]] = defaultdict(list)
        self.turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(SENDERS_PER_QUEUE)
        )

    @asynccontextmanager
    async def sender(self, queue: str) -> AsyncIterator[ServiceBusSender]:
        """Borrow a sender; one that failed is closed, not given back."""
        async with self.turns[queue]:
            idle = self.idle[queue]
            sender = (
                idle.pop()
                if idle
                else self.open(lambda one: one.get_queue_sender(queue), retries=self.retries)
            )
            try:
                yield sender
            except BaseException:
                self.close_later(sender)
                raise
            self.idle[queue].append(sender)

    def close_later(self, link: ServiceBusSender | ServiceBusReceiver) -> None:
        """Close without waiting: a broker that does not answer would keep the caller for long."""
        closing = asyncio.create_task(close_in_time(link))
        self.closing.add(closing)
        closing.add_done_callback(self.closing.discard)

    def open[L](self, link: Callable[[ServiceBusClient], L], *, retries: int = RETRIES) -> L:
        """A link of a client, which is made when its first link is wanted.

        It connects when it is first used. Raises Misconfigured.
        """
        try:
            if retries not in self.clients:
                self.clients[retries] = self.new_client(retries)
            return link(self.clients[retries])
        except ValueError as error:
            # What a setting holds is no connection string, or it is for another queue only.
            raise make_error(Failure(BUS, CREDENTIAL), str(error)) from error

    def new_client(self, retries: int) -> ServiceBusClient:
        options: dict[str, Any] = {
            "retry_total": retries,
            "retry_backoff_factor": 0.1,
            "ssl_context": load_authorities(),
        }
        if self.connection_string is not None:
            return ServiceBusClient.from_connection_string(self.connection_string, **options)
        if self.credential is None:
            self.credential = DefaultAzureCredential(managed_identity_client_id=self.client_id)
        return ServiceBusClient(self.endpoint or "", self.credential, **options)

    async def close(self) -> None:
        """Close every sender and the clients; the next use connects again."""
        senders = [sender for idle in self.idle.values() for sender in idle]
        self.idle.clear()
        await asyncio.gather(*self.closing, *(close_in_time(sender) for sender in senders))
        for client in self.clients.values():
            await close_in_time(client)
        self.clients.clear()
        if self.credential is not None:
            await close_in_time(self.credential)
        self.credential = None


@cache
def load_authorities() -> ssl.SSLContext:
    """Return whom every connection trusts: by itself the SDK reads the same list for each of them.

    That takes 30 ms of processor time, in which the worker does nothing else.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(certifi.where())
    return context


async def close_in_time(closable: ServiceBusSender | ServiceBusClient | Any) -> None:
    """Close what may be connected to a broker that does not answer."""
    with suppress(AzureError, OSError, ValueError, TimeoutError):
        async with asyncio.timeout(CLOSE_SECONDS_MAX):
            await closable.close()


@dataclass(eq=False)
class ServiceBus:
    """See ports.Bus."""

    namespaces: Mapping[str, Namespace]
    send_seconds_max: float = SEND_SECONDS_MAX
    telemetry: Telemetry | None = None
    body_bytes_max: int = BODY_BYTES_MAX

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """See Bus.send: as few batches as the size limit allows.

        One that has no answer after `send_seconds_max` is an unknown outcome as well.
        """
        visible_at = scheduled_time(delay_seconds)
        with self.measured(region, queue, messages), converting(region, queue):
            # The wait for a sender counts as well: others may be waiting for the same silence.
            async with (
                asyncio.timeout(self.send_seconds_max) as limit,
                self.namespaces[region].sender(queue) as sender,
            ):
                for batch in await self.put_in_batches(sender, messages, visible_at):
                    limit.reschedule(asyncio.get_running_loop().time() + self.send_seconds_max)
                    await sender.send_messages(batch)

    async def put_in_batches(
        self, sender: ServiceBusSender, messages: Sequence[Message], visible_at: datetime | None
    ) -> Sequence[ServiceBusMessageBatch]:
        """Return the messages in batches, in order; what no batch takes is raised."""
        batches = [await sender.create_message_batch()]
        for message in messages:
            copy = to_service_bus(message, visible_at)
            try:
                batches[-1].add_message(copy)
            except MessageSizeExceededError:
                if not len(batches[-1]):
                    raise
                batches.append(await sender.create_message_batch())
                batches[-1].add_message(copy)
        return batches

    @contextmanager
    def measured(self, region: str, queue: str, messages: Sequence[Message]) -> Iterator[None]:
        """Tell of a send, and of how it failed."""
        if self.telemetry is None:
            yield
            return
        began, failure = time.monotonic(), ""
        try:
            yield
        except BaseException as error:
            failure = type(error).__name__
            raise
        finally:
            seconds = time.monotonic() - began
            self.telemetry.send(region, queue, messages, seconds, failure)

    async def end_dead_letters(
        self, region: str, queue: str, limit: int, end: Callable[[DeadLetter], Awaitable[bool]]
    ) -> int:
        """See Bus.end_dead_letters: one receiver for each call."""
        given = removed = 0
        until = time.monotonic() + DEAD_LETTER_SECONDS_MAX
        async with AsyncExitStack() as opened:
            receiver = self.namespaces[region].open(
                lambda one: one.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
            )
            with converting(region, queue):
                async with asyncio.timeout(self.send_seconds_max):
                    await opened.enter_async_context(receiver)
            while given < limit and time.monotonic() < until:
                with converting(region, queue):
                    async with asyncio.timeout(self.send_seconds_max):
                        letters = await receiver.receive_messages(
                            min(limit - given, RECEIVED_AT_ONCE), max_wait_time=RECEIVE_WAIT_SECONDS
                        )
                if not letters:
                    break
                for letter in letters:
                    # What is begun too late stays locked for a while, and comes again.
                    if time.monotonic() < until and await end(to_dead_letter(letter)):
                        with converting(region, queue):
                            await receiver.complete_message(letter)
                        removed += 1
                given += len(letters)
        return removed

    async def browse_session(
        self, region: str, queue: str, session: str, after: int, limit: int
    ) -> Browsed:
        """See Browser.browse_session: the SDK looks at a session's messages by a lock of it."""
        namespace = self.namespaces[region]
        with looking(region, queue):
            receiver = await self.lock_session(region, queue, session)
            if receiver is None and namespace.closing:
                # A look before this one may still hold the session.
                await asyncio.wait(namespace.closing)
                receiver = await self.lock_session(region, queue, session)
            if receiver is None:
                return Browsed([], is_all=False)
            try:
                return await self.peek_into([receiver], after, limit)
            finally:
                # The SDK lets the session go at once, and then takes a second for its own tasks.
                namespace.close_later(receiver)

    async def browse_sessions(self, region: str, queue: str, limit: int) -> Browsed:
        """See Browser.browse_sessions: each session is held, so that the next one is another.

        The SDK takes half a second to open a receiver and as long to close it, so several are
        opened at once. None is let go before all are held: the broker would give it once more.
        Each has a message at least, so no more are held than messages are asked for.
        """
        held: list[ServiceBusReceiver] = []
        with looking(region, queue):
            try:
                is_cut = await self.hold_sessions(held, region, queue, min(HELD_MAX, limit))
                browsed = await self.peek_into(held, 0, limit)
                return replace(browsed, is_all=browsed.is_all and not is_cut)
            finally:
                await asyncio.gather(*map(close_in_time, held))

    async def peek_into(
        self, receivers: Sequence[ServiceBusReceiver], after: int, limit: int
    ) -> Browsed:
        """The messages of locked sessions above a number, page by page: the broker cuts each."""
        found: list[BrowsedMessage] = []
        left = PEEKED_BYTES_MAX

        async def peek_rest(receiver: ServiceBusReceiver) -> bool:
            nonlocal left
            first = after + 1
            while (wanted := min(PEEKED_AT_ONCE, limit - len(found))) > 0 < left:
                async with asyncio.timeout(self.send_seconds_max):
                    page = await receiver.peek_messages(wanted, sequence_number=first)
                if not page:
                    return True
                seen = [to_queued(one) for one in page]
                found.extend(seen)
                first = seen[-1].sequence + 1
                left -= sum(len(one.body) for one in seen)
            return False

        ended = await asyncio.gather(*map(peek_rest, receivers))
        return Browsed(found, all(ended))

    async def hold_sessions(
        self, held: list[ServiceBusReceiver], region: str, queue: str, wanted: int
    ) -> bool:
        """Lock so many sessions more, in `held`; False where there are fewer."""

        async def hold_next(_number: int) -> bool:
            receiver = await self.lock_session(region, queue, NEXT_AVAILABLE_SESSION)
            if receiver:
                held.append(receiver)
            return receiver is not None

        begun = 0
        while begun < wanted:
            # Twice as many each time: a long queue is soon held, and a short one takes few links.
            several = range(begun, min(2 * begun + OPENED_AT_ONCE, wanted))
            begun = several.stop
            ended = await asyncio.gather(*map(hold_next, several), return_exceptions=True)
            for one in ended:
                if isinstance(one, BaseException):
                    raise one
            if not all(ended):
                return False
        return True

    async def lock_session(
        self, region: str, queue: str, session: Any
    ) -> ServiceBusReceiver | None:
        """A receiver that has a session's lock; None where there is none to be had."""
        options: dict[str, Any] = {"session_id": session, "max_wait_time": RECEIVE_WAIT_SECONDS}
        # It tries once: that no session waits is an answer.
        receiver = self.namespaces[region].open(
            lambda client: client.get_queue_receiver(queue, **options), retries=0
        )
        try:
            async with asyncio.timeout(self.send_seconds_max):
                return await receiver.__aenter__()
        except (OperationTimeoutError, SessionCannotBeLockedError):
            return None
        except BaseException:
            self.namespaces[region].close_later(receiver)
            raise

    async def look(self, region: str, queue: str) -> None:
        """See Bus.look: the link of a sender is opened, and kept for the messages to come."""
        with converting(region, queue):
            async with self.namespaces[region].sender(queue) as sender:
                taken = (await sender.create_message_batch()).max_size_in_bytes
        if taken < self.body_bytes_max:
            raise Misconfigured(
                f"queue {queue!r} of {region} takes {taken} bytes, but LOCKSTEP_SERVICE_BUS_SKU"
                f" allows bodies of {self.body_bytes_max}"
            )

    async def close(self) -> None:
        for namespace in self.namespaces.values():
            await namespace.close()


def to_queued(received: ServiceBusReceivedMessage) -> BrowsedMessage:
    """A message as it lies in its queue; a body that is no binary data is left out."""
    properties = to_plain(received.application_properties or {})
    is_data = received.body_type is AmqpMessageBodyType.DATA
    return BrowsedMessage(
        session=received.session_id or "",
        sequence=received.sequence_number or 0,
        enqueued_at=received.enqueued_time_utc,
        id=str(properties.get(f"{PREFIX}id", received.message_id)),
        type=str(properties.get(f"{PREFIX}type", "")),
        body=b"".join(received.body) if is_data else b"",
    )


@contextmanager
def converting(region: str, queue: str) -> Iterator[None]:
    """Turn what the SDK raises into errors of the engine's."""
    try:
        yield
    except (AzureError, TimeoutError, OSError, ValueError) as error:
        place = f"(queue {queue!r} of {region}: {error})"
        raise make_error(Failure(BUS, code_of(error)), place) from error


@contextmanager
def looking(region: str, queue: str) -> Iterator[None]:
    """Convert errors like `converting`, where nothing changes: no outcome is left unknown."""
    try:
        with converting(region, queue):
            yield
    except OutcomeUnknown as error:
        raise Unavailable(f"queue {queue!r} of {region} did not answer in time") from error


def code_of(error: BaseException) -> str:
    """Return the code of the table for an exception of the SDK."""
    if isinstance(error, ClientAuthenticationError):
        return CREDENTIAL
    # The SDK has a class for some conditions, and names the others in the error's text only.
    condition = getattr(error, "_condition", None)
    if type(error) is ServiceBusError and condition:
        return str(getattr(condition, "value", condition))
    return type(error).__name__


def scheduled_time(delay_seconds: float) -> datetime | None:
    """Return the time at which a delayed copy becomes visible; None for at once."""
    return datetime.now(UTC) + timedelta(seconds=delay_seconds) if delay_seconds > 0 else None


def list_properties(message: Message) -> dict[str | bytes, Property]:
    """The application properties of a message, whoever encodes it."""
    properties = dict[str | bytes, Property](to_properties(message).items())
    if message.traceparent is not None:
        # The SDKs and the Functions host look for the trace here. Left to itself the SDK would give
        # each copy a span of its own.
        properties |= dict.fromkeys(TRACE_PROPERTIES, message.traceparent)
    return properties


def to_service_bus(message: Message, visible_at: datetime | None) -> ServiceBusMessage:
    """A message as the SDK wants it. Identity is in the application properties, see domain.wire."""
    return ServiceBusMessage(
        message.body,
        application_properties=dict[Any, Any](list_properties(message)),
        content_type=CONTENT_TYPE,
        message_id=message.id,
        session_id=message.session,
        scheduled_enqueue_time_utc=visible_at,
    )


def to_dead_letter(received: ServiceBusReceivedMessage) -> DeadLetter:
    """A dead letter with its properties as text, and its body as bytes, whatever they were."""
    described = (received.dead_letter_reason, received.dead_letter_error_description)
    reason = ": ".join(str(to_plain(part)) for part in described if part) or "no reason given"
    kind = received.body_type
    is_unbound = kind is not AmqpMessageBodyType.DATA
    if not is_unbound:
        body = b"".join(received.body)
    else:
        # The host cannot give such a body to a function, so its deliveries fail until none is left.
        reason = f"its body is an AMQP {kind.value}, not data; {reason}"
        content = to_plain(
            received.body if kind is AmqpMessageBodyType.VALUE else list(received.body)
        )
        text = content if isinstance(content, str) else json.dumps(content, default=str)
        body = text.encode(errors="surrogateescape")
    properties = to_plain(received.application_properties or {})
    for name in SENT_AT & properties.keys():
        if type(properties[name]) is int:
            # The SDK gives a time of AMQP as milliseconds, where the host gives it as text.
            with suppress(OverflowError):
                properties[name] = (UNIX + timedelta(milliseconds=properties[name])).isoformat()
    enqueued_at = received.enqueued_time_utc
    return DeadLetter(received.session_id, properties, body, reason, is_unbound, enqueued_at)


def to_plain(value: Any) -> Any:
    """Return a received value as JSON has it: the SDK gives text as bytes, even that of keys."""
    match value:
        case bytes():
            return value.decode(errors="surrogateescape")
        case UUID():
            return str(value)
        case Mapping():
            return {str(to_plain(key)): to_plain(item) for key, item in value.items()}
        case list() | tuple():
            return [to_plain(item) for item in value]
    return value
