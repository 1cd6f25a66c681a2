"""A Service Bus session held by this host."""

from datetime import UTC, datetime, timedelta

import proton

from local.functions_host.amqp.connection import AmqpConnection
from local.functions_host.amqp.errors import LockLost, RequestRefused
from local.functions_host.amqp.receiver import Receiver
from local.functions_host.amqp.requests import RequestNode

FILTER = proton.symbol("com.microsoft:session-filter")
LOCKED_UNTIL = "com.microsoft:locked-until-utc"
TIMEOUT = proton.symbol("com.microsoft:timeout")
TICKS_PER_MICROSECOND = 10
FIRST_DAY = datetime(1, 1, 1, tzinfo=UTC)


class Session(Receiver):
    """One session lock, and the link it lives on; released, its messages return uncounted."""

    def __init__(
        self,
        connection: AmqpConnection,
        management: RequestNode,
        entity: str,
        link_name: str,
        prefetch: int,
    ) -> None:
        super().__init__(connection, management, entity, link_name, prefetch)
        self.id = ""
        self.locked_until = FIRST_DAY

    async def accept_next(self, wait_seconds: float) -> bool:
        """Take the lock of whichever session is free next; False if none came free in time.

        Raises RequestRefused when the queue is missing or not for sessions.
        """
        link = self._link
        link.source.address = self._entity
        link.source.filter.put_dict({FILTER: None})
        link.target.address = f"{self._entity}-receiver"
        link.rcv_settle_mode = proton.Link.RCV_SECOND
        link.properties = {TIMEOUT: proton.uint(int(wait_seconds * 1000))}
        link.open()
        self._connection.flush()
        return await self._attached

    async def renew(self) -> None:
        """Prolong the lock; raises LockLost when it is not ours any more."""
        properties = {
            "operation": "com.microsoft:renew-session-lock",
            "com.microsoft:server-timeout": proton.uint(10_000),
            "associated-link-name": self._link.name,
        }
        try:
            answer = await self._management.ask(properties, {"session-id": self.id})
        except RequestRefused as error:
            self._lost = LockLost(str(error))
            self._change.set()
            raise self._lost from error
        expiration = {str(name): value for name, value in answer.items()}["expiration"]
        self.locked_until = datetime.fromtimestamp(expiration / 1000, UTC)

    def on_attached(self) -> None:
        """The queue granted a session, or refuses in the next frame if the source is empty."""
        source = self._link.remote_source
        if source.address and not self._attached.done():
            self.id = str(first_of(source.filter).get(FILTER, ""))
            properties = self._link.remote_properties or {}
            self.locked_until = ticks_to_time(int(properties.get(LOCKED_UNTIL, 0)))
            super().on_attached()

    def on_detached(self, condition: str, description: str) -> None:
        """No session in time, a refusal, or the end of the lock or of the connection."""
        if condition == "com.microsoft:timeout" and not self._attached.done():
            self._attached.set_result(False)
        super().on_detached(condition, description)


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
