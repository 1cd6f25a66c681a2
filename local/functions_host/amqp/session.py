"""A Service Bus session held by this host: receive, settle, renew, release."""

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import proton

from local.functions_host.amqp.connection import AmqpConnection, condition_of, tag_of
from local.functions_host.amqp.errors import ConnectionLost, RequestRefused, SessionLockLost
from local.functions_host.amqp.requests import RequestNode

FILTER = proton.symbol("com.microsoft:session-filter")
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
TIMEOUT = proton.symbol("com.microsoft:timeout")
LOCK_CONDITIONS = ("com.microsoft:session-lock-lost", "com.microsoft:message-lock-lost")
TICKS_PER_MICROSECOND = 10
FIRST_DAY = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class ReceivedMessage:
    """A message under lock: its encoded sections and the delivery to settle it by."""

    content: bytes
    tag: bytes
    delivery: proton.Delivery


class Session:
    """One session lock, and the link it lives on. Any call may raise ConnectionLost."""

    def __init__(
        self,
        connection: AmqpConnection,
        management: RequestNode,
        queue: str,
        link_name: str,
        prefetch: int,
    ) -> None:
        self._connection = connection
        self._management = management
        self._queue = queue
        self._link = connection.receiver(link_name, self)
        self._accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._window = max(1, prefetch)
        self._inbox: deque[ReceivedMessage] = deque()
        self._arrival = asyncio.Event()
        self._settling: dict[bytes, asyncio.Future[None]] = {}
        self._lost: Exception | None = None
        self.id = ""
        self.locked_until = FIRST_DAY

    async def accept_next(self, wait_seconds: float) -> bool:
        """Take the lock of whichever session is free next; False if none came free in time.

        Raises RequestRefused when the queue is missing or not for sessions.
        """
        link = self._link
        link.source.address = self._queue
        link.source.filter.put_dict({FILTER: None})
        link.target.address = f"{self._queue}-receiver"
        link.rcv_settle_mode = proton.Link.RCV_SECOND
        link.properties = {TIMEOUT: proton.uint(int(wait_seconds * 1000))}
        link.open()
        self._connection.flush()
        return await self._accepted

    async def receive(self, idle_seconds: float) -> ReceivedMessage | None:
        """Return the session's next message, or None if none arrives in time.

        Without prefetch a message is asked for only here, so an abandoned one comes back first.
        """
        if self._lost is None:
            self._ask_for_messages()
        if not self._inbox and self._lost is None:
            self._arrival.clear()
            try:
                async with asyncio.timeout(idle_seconds):
                    await self._arrival.wait()
            except TimeoutError:
                return None
        if self._lost is not None:
            raise self._lost
        return self._inbox.popleft()

    async def complete(self, message: ReceivedMessage) -> None:
        """Remove the message from the queue; raises SessionLockLost when it is ours no more."""
        await self._settle(message, proton.Delivery.ACCEPTED)

    async def abandon(self, message: ReceivedMessage) -> None:
        """Give the message back, to be delivered again with its count raised."""
        message.delivery.local.failed = True
        message.delivery.local.undeliverable = False
        await self._settle(message, proton.Delivery.MODIFIED)

    async def renew(self) -> None:
        """Prolong the lock; raises SessionLockLost when it is not ours any more."""
        properties = {
            "operation": "com.microsoft:renew-session-lock",
            "com.microsoft:server-timeout": proton.uint(10_000),
            "associated-link-name": self._link.name,
        }
        try:
            answer = await self._management.ask(properties, {"session-id": self.id})
        except RequestRefused as error:
            self._lost = SessionLockLost(str(error))
            self._arrival.set()
            raise self._lost from error
        expiration = {str(name): value for name, value in answer.items()}["expiration"]
        self.locked_until = datetime.fromtimestamp(expiration / 1000, UTC)

    def release(self) -> None:
        """Let go of the lock; messages not settled return to the session uncounted."""
        self._connection.forget(self._link)

    def on_attached(self) -> None:
        """The queue granted a session, or refuses in the next frame if the source is empty."""
        source = self._link.remote_source
        if not source.address or self._accepted.done():
            return
        self.id = str(first_of(source.filter).get(FILTER, ""))
        properties = self._link.remote_properties or {}
        self.locked_until = ticks_to_time(int(properties.get(LOCKED_UNTIL, 0)))
        self._accepted.set_result(True)

    def on_detached(self, condition: str, description: str) -> None:
        """No session in time, a refusal, or the end of the lock or of the connection."""
        error = end_of_link(condition, description)
        if not self._accepted.done():
            if condition == "com.microsoft:timeout":
                self._accepted.set_result(False)
            else:
                self._accepted.set_exception(error)
        self._lost = self._lost or error
        self._arrival.set()
        for settled in self._settling.values():
            if not settled.done():
                settled.set_exception(self._lost)

    def on_message(self, delivery: proton.Delivery, content: bytes) -> None:
        """A message arrived under lock."""
        self._inbox.append(ReceivedMessage(content, tag_of(delivery), delivery))
        self._arrival.set()

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

    def _ask_for_messages(self) -> None:
        missing = self._window - self._link.credit - len(self._inbox)
        if missing > 0:
            self._link.flow(missing)
            self._connection.flush()

    async def _settle(self, message: ReceivedMessage, outcome: int) -> None:
        if self._lost is not None:
            raise self._lost
        settled = self._settling[message.tag] = asyncio.get_running_loop().create_future()
        message.delivery.update(outcome)
        self._connection.flush()
        try:
            await settled
        finally:
            del self._settling[message.tag]


def end_of_link(condition: str, description: str) -> Exception:
    """Name the error that the end of a link means to whoever holds the session."""
    if condition in LOCK_CONDITIONS:
        return SessionLockLost(f"{condition}: {description}")
    if condition:
        return RequestRefused(condition, description)
    return ConnectionLost(description)


def first_of(data: proton.Data) -> dict[object, object]:
    """Read the map a data object starts with; none is an empty map."""
    data.rewind()
    if data.next() is None:
        return {}
    content = data.get_object()
    return content if isinstance(content, dict) else {}


def ticks_to_time(ticks: int) -> datetime:
    """Translate .NET ticks (a tenth of a microsecond since the year 1)."""
    return FIRST_DAY + timedelta(microseconds=ticks // TICKS_PER_MICROSECOND)
