"""A receiving link under peek-lock: receive one or many, complete, abandon, detach."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import proton

from local.functions_host.amqp.connection import AmqpConnection, condition_of, tag_of
from local.functions_host.amqp.errors import ConnectionLost, LockLost, RequestRefused
from local.functions_host.amqp.requests import ANSWER_SECONDS, RequestNode

LOCK_CONDITIONS = ("com.microsoft:session-lock-lost", "com.microsoft:message-lock-lost")


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedMessage:
    """A message under lock: its encoded sections and the delivery to settle it by."""

    content: bytes
    tag: bytes
    delivery: proton.Delivery


class Receiver:
    """The link and what came over it. Any call may raise ConnectionLost."""

    def __init__(
        self,
        connection: AmqpConnection,
        management: RequestNode,
        entity: str,
        link_name: str,
        prefetch: int,
    ) -> None:
        self._connection = connection
        self._management = management
        self._entity = entity
        self._link = connection.receiver(link_name, self)
        self._attached: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._prefetch = prefetch
        self._inbox: deque[ReceivedMessage] = deque()
        self._change = asyncio.Event()
        self._settling: dict[bytes, asyncio.Future[None]] = {}
        self._lost: Exception | None = None

    async def receive(self, idle_seconds: float | None) -> ReceivedMessage | None:
        """Return the next message, or None if none arrives in time; None waits without end.

        Without prefetch a message is asked for only here, so an abandoned one comes back first.
        """
        self._ask_for(max(1, self._prefetch))
        if not await self._arrived(1, idle_seconds):
            return None
        return self._inbox.popleft()

    async def receive_batch(
        self, least: int, most: int, idle_seconds: float | None, fill_seconds: float
    ) -> list[ReceivedMessage]:
        """Return what is there, up to `most`; nothing if nothing arrives in time.

        Once there is one, `fill_seconds` is the time to wait for the `least`. What was asked for
        and did not come is called back, so that an abandoned message comes before a new one.
        """
        self._ask_for(max(most, self._prefetch))
        if not await self._arrived(1, idle_seconds):
            return []
        await self._arrived(least, fill_seconds)
        if self._prefetch == 0:
            await self._call_back()
        count = min(most, len(self._inbox))
        return [self._inbox.popleft() for _ in range(count)]

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

    def release(self) -> None:
        """Detach the link."""
        self._connection.forget(self._link)

    def on_attached(self) -> None:
        """The queue attached its side, or refuses in the next frame if the source is empty."""
        if self._link.remote_source.address and not self._attached.done():
            self._attached.set_result(True)

    def on_detached(self, condition: str, description: str) -> None:
        """A refusal, or the end of a lock or of the connection."""
        self._lost = self._lost or end_of_link(condition, description)
        if not self._attached.done():
            self._attached.set_exception(self._lost)
        self._change.set()
        for settled in self._settling.values():
            if not settled.done():
                settled.set_exception(self._lost)

    def on_flow(self) -> None:
        """The queue has told how much credit is left."""
        self._change.set()

    def on_message(self, delivery: proton.Delivery, content: bytes) -> None:
        """A message arrived under lock."""
        self._inbox.append(ReceivedMessage(content, tag_of(delivery), delivery))
        self._change.set()

    def on_settled(self, delivery: proton.Delivery) -> None:
        """The queue confirmed or refused an outcome."""
        settled = self._settling.get(tag_of(delivery))
        if settled is None or settled.done():
            return
        condition, description = condition_of(delivery)
        if delivery.remote_state == proton.Delivery.REJECTED:
            settled.set_exception(end_of_link(condition, description))
        else:
            settled.set_result(None)

    def _ask_for(self, count: int) -> None:
        self._require_link()
        missing = count - self._link.credit - len(self._inbox)
        if missing > 0:
            self._link.flow(missing)
            self._connection.flush()

    async def _arrived(self, count: int, seconds: float | None) -> bool:
        """Wait until so many messages are there; false if time ends before."""
        if len(self._inbox) >= count:
            return True
        try:
            async with asyncio.timeout(seconds):
                while len(self._inbox) < count:
                    await self._next_change()
        except TimeoutError:
            return False
        self._require_link()
        return True

    async def _call_back(self) -> None:
        """Take unused credit back; when this returns nothing more is on its way."""
        self._link.drain(0)
        self._connection.flush()
        while self._link.draining():
            await self._next_change()
        self._link.drain_mode = False

    async def _next_change(self) -> None:
        self._change.clear()
        self._require_link()
        await self._change.wait()
        self._require_link()

    def _require_link(self) -> None:
        if self._lost is not None:
            raise self._lost

    async def _settle_all(self, messages: Sequence[ReceivedMessage], outcome: int) -> None:
        match messages:
            case [only]:  # without the tasks of a gathering
                await self._settle(only, outcome)
            case _:
                await asyncio.gather(*(self._settle(one, outcome) for one in messages))

    async def _settle(self, message: ReceivedMessage, outcome: int) -> None:
        self._require_link()
        settled = self._settling[message.tag] = asyncio.get_running_loop().create_future()
        message.delivery.update(outcome)
        self._connection.flush()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await settled
        except TimeoutError as error:
            raise ConnectionLost("no answer to a settlement") from error
        finally:
            del self._settling[message.tag]


def end_of_link(condition: str, description: str) -> Exception:
    """Name the error that the end of a link means to whoever holds it."""
    if condition in LOCK_CONDITIONS:
        return LockLost(f"{condition}: {description}")
    if condition:
        return RequestRefused(condition, description)
    return ConnectionLost(description)
