"""A queue or subscription in a namespace: its address, and the connection to it."""

import asyncio
import base64
import hashlib
import hmac
import logging
import time
from dataclasses import dataclass
from itertools import count
from urllib.parse import quote_plus, urlsplit

from local.functions_host.clients.amqp import (
    AmqpClient,
    ConnectionLost,
    RequestClient,
    RequestRefused,
)
from local.functions_host.clients.receivers import PlainReceiver, SessionReceiver

log = logging.getLogger(__name__)

AMQP_PORT = 5672
TOKEN_LIFETIME_SECONDS = 30 * 24 * 3600  # a token is put once per connection and not renewed
NOT_FOUND = "amqp:not-found"  # there is no such queue or subscription
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class NamespaceAddress:
    host: str
    port: int
    key_name: str
    key: str

    @classmethod
    def parse(cls, connection_string: str) -> "NamespaceAddress":
        """Read a connection string; one that needs TLS or names no key raises ValueError."""
        pairs = (part.partition("=") for part in connection_string.split(";") if part)
        fields = {name.strip().lower(): value for name, _, value in pairs}
        if fields.get("usedevelopmentemulator", "").lower() != "true":
            only = "only connection strings with UseDevelopmentEmulator=true are honoured"
            raise ValueError(only)
        endpoint = urlsplit(fields.get("endpoint", ""))
        if not endpoint.hostname or not fields.get("sharedaccesskeyname"):
            raise ValueError("a connection string needs Endpoint and SharedAccessKeyName")
        key = fields.get("sharedaccesskey", "")
        port = endpoint.port or AMQP_PORT
        return cls(endpoint.hostname, port, fields["sharedaccesskeyname"], key)

    def audience(self, entity: str) -> str:
        return f"amqp://{self.host}:{self.port}/{entity}"

    def token(self, entity: str) -> str:
        resource = quote_plus(self.audience(entity))
        expiry = int(time.time()) + TOKEN_LIFETIME_SECONDS
        digest = hmac.digest(self.key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256)
        signature = quote_plus(base64.b64encode(digest))
        return (
            f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={self.key_name}"
        )


class EntityClient:
    """A queue or subscription over one connection, made when needed and again after it broke.

    It is safe for many tasks at once.
    """

    def __init__(self, address: NamespaceAddress, entity: str, prefetch: int) -> None:
        self._address = address
        self._entity = entity
        self._prefetch = prefetch
        self._connecting = asyncio.Lock()
        self._client: AmqpClient | None = None
        self._management: RequestClient | None = None
        self._link_numbers = count(1)
        self._is_down = False

    async def accept_next_session(self, wait_seconds: float) -> SessionReceiver | None:
        """Take the next free session; None if none came free in time.

        While the namespace is down this waits and tries again, without end. A queue that refuses
        raises RequestRefused; a connection that breaks meanwhile raises ConnectionLost.
        """
        session = await self._make_receiver(SessionReceiver)
        try:
            accepted = await session.accept_next(wait_seconds)
        except asyncio.CancelledError:
            session.detach()
            raise
        return session if accepted else None

    async def open_receiver(self) -> PlainReceiver:
        """Begin to receive without sessions; waits and raises as `accept_next_session` does."""
        receiver = await self._make_receiver(PlainReceiver)
        await receiver.attach()
        return receiver

    async def close(self) -> None:
        """Close the connection, and with it every session still held."""
        if self._client is not None:
            await self._client.close()

    async def _make_receiver[R: (SessionReceiver, PlainReceiver)](self, kind: type[R]) -> R:
        client = await self._connect()
        # A namespace may close this link when it lies idle for long.
        if self._management is None or not self._management.is_open:
            self._management = RequestClient(client, f"{self._entity}/$management")
        link_name = f"receiver-{next(self._link_numbers)}"
        return kind(client, self._management, self._entity, link_name, self._prefetch)

    async def _connect(self) -> AmqpClient:
        async with self._connecting:
            pause = FIRST_PAUSE_SECONDS
            while self._client is None or not self._client.is_open:
                try:
                    self._client = await self._open_client()
                except (ConnectionLost, RequestRefused) as error:
                    if isinstance(error, RequestRefused) and error.condition == NOT_FOUND:
                        raise
                    if not self._is_down:
                        self._is_down = True
                        log.warning("the namespace is down, trying again: %s", error)
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                else:
                    self._management = None
                    self._is_down = False
                    log.info("connected to %s:%d", self._address.host, self._address.port)
            return self._client

    async def _open_client(self) -> AmqpClient:
        client = await AmqpClient.open(self._address.host, self._address.port)
        properties = {
            "operation": "put-token",
            "name": self._address.audience(self._entity),
            "type": "servicebus.windows.net:sastoken",
        }
        try:
            tokens = RequestClient(client, "$cbs")
            await tokens.request(properties, self._address.token(self._entity))
        except (ConnectionLost, RequestRefused):
            await client.close()
            raise
        tokens.close()
        return client
