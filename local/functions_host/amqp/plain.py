"""A receiver on a queue or subscription without sessions."""

import asyncio
import uuid
from contextlib import suppress
from datetime import UTC, datetime

import proton

from local.functions_host.amqp.errors import ConnectionLost, LockLost, RequestRefused
from local.functions_host.amqp.receiver import ReceivedMessage, Receiver

GOODBYE_SECONDS = 1.0


class PlainReceiver(Receiver):
    """Messages under locks of their own."""

    async def attach(self) -> None:
        """Begin; raises RequestRefused when the entity is missing or for sessions only."""
        self._link.source.address = self._entity
        self._link.target.address = f"{self._entity}-receiver"
        self._link.rcv_settle_mode = proton.Link.RCV_SECOND
        self._link.open()
        self._connection.flush()
        await self._attached

    async def let_go(self) -> None:
        """Give back, uncounted, what arrived and was not handed out, then detach."""
        with suppress(ConnectionLost, LockLost, RequestRefused, TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._call_back()
                while self._inbox:
                    await self._settle(self._inbox.popleft(), proton.Delivery.RELEASED)
        self.release()

    async def renew(self, message: ReceivedMessage) -> datetime:
        """Prolong a message's lock until the answer; raises LockLost when it is not ours."""
        properties = {
            "operation": "com.microsoft:renew-lock",
            "com.microsoft:server-timeout": proton.uint(10_000),
            "associated-link-name": self._link.name,
        }
        token = uuid.UUID(bytes_le=message.tag)
        tokens = proton.Array(proton.UNDESCRIBED, proton.Data.UUID, token)  # type: ignore[arg-type]
        try:
            answer = await self._management.ask(properties, {"lock-tokens": tokens})
        except RequestRefused as error:
            raise LockLost(str(error)) from error
        (expiration,) = {str(name): value for name, value in answer.items()}["expirations"]
        return datetime.fromtimestamp(expiration / 1000, UTC)


class MessageLock:
    """The lock of one message, as something that can be kept."""

    def __init__(self, receiver: PlainReceiver, message: ReceivedMessage) -> None:
        self._receiver = receiver
        self._message = message
        decoded = proton.Message()
        decoded.decode(message.content)
        annotations = {str(name): value for name, value in (decoded.annotations or {}).items()}
        self.id = str(decoded.id)
        self.locked_until = datetime.fromtimestamp(annotations["x-opt-locked-until"] / 1000, UTC)

    async def renew(self) -> None:
        """Prolong the lock; raises LockLost when it is not ours any more."""
        self.locked_until = await self._receiver.renew(self._message)
