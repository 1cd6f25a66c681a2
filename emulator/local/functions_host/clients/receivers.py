"""Receiving links under peek-lock: of a session, and of an entity without sessions."""

import asyncio
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import proton

from local.functions_host.clients.amqp import (
    RESPONSE_SECONDS,
    AmqpClient,
    ConnectionLost,
    LinkListener,
    LockLost,
    RequestClient,
    RequestRefused,
    tag_of,
    texts_of,
)
from local.servicebus.amqp.message_format import Undecodable

LOCK_CONDITIONS = ("com.microsoft:session-lock-lost", "com.microsoft:message-lock-lost")
SESSION_FILTER = proton.symbol("com.microsoft:session-filter")
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
TIMEOUT = proton.symbol("com.microsoft:timeout")
SERVER_TIMEOUT = proton.uint(10_000)  # milliseconds
RETURN_SECONDS = 1.0
FIRST_DAY = datetime(1, 1, 1, tzinfo=UTC)
TICKS_PER_MICROSECOND = 10  # .NET counts tenths of a microsecond since the year 1


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedMessage:
    """A message under lock: its encoded sections and the delivery to settle it by."""

    content: bytes
    tag: bytes
    delivery: proton.Delivery

    def decode(self) -> proton.Message:
        """Decode; raises Undecodable, also for text not in UTF-8 and keys that are none in Python.

        Proton checks less than its Python binding can give back.
        """
        message = proton.Message()
        try:
            message.decode(self.content)
        except (proton.ProtonException, UnicodeDecodeError, TypeError) as error:
            raise Undecodable(f"not a message that can be decoded: {error}") from error
        return message


class Receiver(LinkListener):
    """The link and what came over it. Any call may raise ConnectionLost."""

    def __init__(
        self,
        client: AmqpClient,
        management: RequestClient,
        entity: str,
        link_name: str,
        prefetch: int,
    ) -> None:
        self._client = client
        self._management = management
        self._link = client.receiver(link_name, self)
        self._link.source.address = entity
        self._link.target.address = f"{entity}-receiver"
        self._link.rcv_settle_mode = proton.Link.RCV_SECOND
        self._attached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._prefetch = prefetch
        self._received: deque[ReceivedMessage] = deque()
        self._waiting = 0  # calls that wait for one message each
        # As many as there are messages: one that arrives wakes one of the calls, not all.
        self._arrived = asyncio.Semaphore(0)
        self._credit_changing = asyncio.Lock()
        self._random = Random(0)  # noqa: S311 - no secret, the same in every run
        self._change = asyncio.Event()
        self._settling: dict[bytes, asyncio.Future[None]] = {}
        self._lost: Exception | None = None

    async def attach(self) -> bool:
        """Begin; raises RequestRefused when the entity is missing or of the other kind."""
        self._link.open()
        self._client.flush()
        return await self._attached

    def detach(self) -> None:
        self._client.detach(self._link)

    async def receive(self, idle_seconds: float | None) -> ReceivedMessage | None:
        """Return the next message, or None if none arrives in time; None waits without end.

        Without prefetch a message is asked for only here, so an abandoned one comes back first.
        """
        self._waiting += 1
        try:
            async with self._credit_changing:
                self._request_messages(max(self._waiting, self._prefetch))
            async with asyncio.timeout(idle_seconds):
                await self._arrived.acquire()
            self._require_link()
            return self._take_one()
        except TimeoutError:
            return None
        finally:
            self._waiting -= 1

    def _take_one(self) -> ReceivedMessage:
        """The first message, or any when several calls wait: their starts have no order."""
        if self._waiting > 1:
            self._received.rotate(-self._random.randrange(len(self._received)))
        return self._received.popleft()

    async def take_back_credit(self) -> None:
        """Drain what a receive without result has left, and give the others their credit again.

        Without an answer in time the connection counts as lost.
        """
        async with self._credit_changing:
            try:
                async with asyncio.timeout(RESPONSE_SECONDS):
                    await self._drain()
            except TimeoutError as error:
                raise ConnectionLost("no answer to a drain") from error
            self._request_messages(self._waiting)

    async def receive_batch(
        self, least: int, most: int, idle_seconds: float | None, fill_seconds: float
    ) -> list[ReceivedMessage]:
        """Return what is there, up to `most`; nothing if nothing arrives in time.

        Once there is one, `fill_seconds` is the time to wait for the `least`. Credit that was not
        used is drained, so that an abandoned message comes before a new one.
        """
        self._request_messages(max(most, self._prefetch))
        if not await self._wait_for(1, idle_seconds):
            return []
        await self._wait_for(least, fill_seconds)
        if self._prefetch == 0:
            await self._drain()
        for _ in range(count := min(most, len(self._received))):
            await self._arrived.acquire()
        return [self._received.popleft() for _ in range(count)]

    async def fail_when_lost(self) -> None:
        """Wait without end, and raise LockLost or ConnectionLost as soon as the link is gone."""
        while True:
            await self._next_change()

    async def complete(self, messages: Sequence[ReceivedMessage]) -> None:
        """Remove messages from the queue; raises LockLost when one is ours no more.

        Without an answer in time the connection counts as lost: what was settled is not known.
        """
        await self._settle_all(messages, proton.Delivery.ACCEPTED)

    async def abandon(self, messages: Sequence[ReceivedMessage]) -> None:
        """Give messages back, to be delivered again with their counts raised."""
        for message in messages:
            message.delivery.local.failed = True
            message.delivery.local.undeliverable = False
        await self._settle_all(messages, proton.Delivery.MODIFIED)

    def on_attached(self) -> None:
        # With an empty source the queue refuses in the next frame.
        if self._link.remote_source.address and not self._attached.done():
            self._attached.set_result(True)

    def on_detached(self, condition: str, description: str) -> None:
        self._lost = self._lost or error_of(condition, description)
        if not self._attached.done():
            self._attached.set_exception(self._lost)
        self._tell_loss()
        for settled in self._settling.values():
            if not settled.done():
                settled.set_exception(self._lost)

    def on_flow(self) -> None:
        self._change.set()

    def on_message(self, delivery: proton.Delivery, content: bytes) -> None:
        self._received.append(ReceivedMessage(content, tag_of(delivery), delivery))
        self._arrived.release()
        self._change.set()

    def on_settled(self, delivery: proton.Delivery) -> None:
        settled = self._settling.get(tag_of(delivery))
        if settled is None or settled.done():
            return
        if delivery.remote_state == proton.Delivery.REJECTED:
            settled.set_exception(error_of(*texts_of(delivery.remote.condition)))
        else:
            settled.set_result(None)

    async def _request_renewal(self, operation: str, body: Mapping[str, Any]) -> Any:
        properties = {
            "operation": f"com.microsoft:{operation}",
            "com.microsoft:server-timeout": SERVER_TIMEOUT,
            "associated-link-name": self._link.name,
        }
        try:
            return await self._management.request(properties, body)
        except RequestRefused as error:
            raise LockLost(str(error)) from error

    def _request_messages(self, count: int) -> None:
        """Give credit, so that with what is here and on its way there are so many."""
        self._require_link()
        missing = count - self._link.credit - len(self._received)
        if missing > 0:
            self._link.flow(missing)
            self._client.flush()

    async def _wait_for(self, count: int, seconds: float | None) -> bool:
        """Wait until so many messages are there; false if time ends before."""
        if len(self._received) >= count:
            return True
        try:
            async with asyncio.timeout(seconds):
                while len(self._received) < count:
                    await self._next_change()
        except TimeoutError:
            return False
        self._require_link()
        return True

    async def _drain(self) -> None:
        """Take unused credit back; when this returns nothing more is on its way."""
        self._link.drain(0)
        self._client.flush()
        while self._link.draining():
            await self._next_change()
        self._link.drain_mode = False

    async def _next_change(self) -> None:
        self._change.clear()
        self._require_link()
        await self._change.wait()
        self._require_link()

    def _tell_loss(self) -> None:
        """Wake everybody who waits for this link; whoever asks later is told before waiting."""
        self._change.set()
        for _ in range(self._waiting):
            self._arrived.release()

    def _require_link(self) -> None:
        if self._lost is not None:
            raise self._lost

    async def _settle_all(self, messages: Sequence[ReceivedMessage], outcome: int) -> None:
        if len(messages) == 1:  # without the tasks of a gathering
            await self._settle(messages[0], outcome)
        else:
            await asyncio.gather(*(self._settle(one, outcome) for one in messages))

    async def _settle(self, message: ReceivedMessage, outcome: int) -> None:
        """Send an outcome and wait until the queue confirms it (receiver settle mode second)."""
        self._require_link()
        settled = self._settling[message.tag] = asyncio.get_running_loop().create_future()
        message.delivery.update(outcome)
        self._client.flush()
        try:
            async with asyncio.timeout(RESPONSE_SECONDS):
                await settled
        except TimeoutError as error:
            raise ConnectionLost("no answer to a settlement") from error
        finally:
            del self._settling[message.tag]


class SessionReceiver(Receiver):
    """One session lock, and the link it lives on; detached, its messages return uncounted."""

    id = ""
    locked_until = FIRST_DAY

    async def accept_next(self, wait_seconds: float) -> bool:
        """Take the lock of whichever session is free next; False if none came free in time."""
        self._link.source.filter.put_dict({SESSION_FILTER: None})
        self._link.properties = {TIMEOUT: proton.uint(int(wait_seconds * 1000))}
        return await self.attach()

    async def renew(self) -> None:
        """Prolong the lock; raises LockLost when it is not ours any more."""
        try:
            body = await self._request_renewal("renew-session-lock", {"session-id": self.id})
        except LockLost as error:
            self._lost = error
            self._tell_loss()
            raise
        self.locked_until = datetime.fromtimestamp(body["expiration"] / 1000, UTC)

    def on_attached(self) -> None:
        """The queue granted a session, or refuses in the next frame if the source is empty."""
        source = self._link.remote_source
        if source.address and not self._attached.done():
            source.filter.rewind()
            granted = source.filter.get_object() if source.filter.next() is not None else {}
            self.id = str(granted.get(SESSION_FILTER, "")) if isinstance(granted, dict) else ""
            properties = self._link.remote_properties or {}
            ticks = int(properties.get(LOCKED_UNTIL, 0))
            self.locked_until = FIRST_DAY + timedelta(microseconds=ticks // TICKS_PER_MICROSECOND)
            super().on_attached()

    def on_detached(self, condition: str, description: str) -> None:
        if condition == "com.microsoft:timeout" and not self._attached.done():
            self._attached.set_result(False)
        super().on_detached(condition, description)


class PlainReceiver(Receiver):
    async def return_prefetched(self) -> None:
        """Give back, uncounted, what arrived and was not handed out."""
        with suppress(ConnectionLost, LockLost, RequestRefused, TimeoutError):
            async with asyncio.timeout(RETURN_SECONDS):
                await self._drain()
                while self._received:
                    await self._settle(self._received.popleft(), proton.Delivery.RELEASED)

    async def renew(self, message: ReceivedMessage) -> datetime:
        """Prolong a message's lock; return its new end. Raises LockLost when it is not ours."""
        token = uuid.UUID(bytes_le=message.tag)
        tokens = proton.Array(proton.UNDESCRIBED, proton.Data.UUID, token)  # type: ignore[arg-type]
        body = await self._request_renewal("renew-lock", {"lock-tokens": tokens})
        (expiration,) = body["expirations"]
        return datetime.fromtimestamp(expiration / 1000, UTC)


class MessageLock:
    """The lock of one message without a session. Raises Undecodable."""

    def __init__(self, receiver: PlainReceiver, message: ReceivedMessage) -> None:
        self._receiver = receiver
        self._message = message
        decoded = message.decode()
        annotations: dict[Any, Any] = dict(decoded.annotations or {})  # symbols equal their texts
        self.id = str(decoded.id)
        self.locked_until = datetime.fromtimestamp(annotations["x-opt-locked-until"] / 1000, UTC)

    async def renew(self) -> None:
        """Prolong the lock; raises LockLost when it is not ours any more."""
        self.locked_until = await self._receiver.renew(self._message)


def error_of(condition: str, description: str) -> Exception:
    if condition in LOCK_CONDITIONS:
        return LockLost(f"{condition}: {description}")
    if condition:
        return RequestRefused(condition, description)
    return ConnectionLost(description)
