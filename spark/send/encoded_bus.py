"""A bus that sends encoded batches: what a feed sends goes to every region from the same bytes."""

import asyncio
import hmac
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from urllib.parse import quote_plus, urlsplit

from azure.core.exceptions import AzureError
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus import parse_connection_string

from shared.adapters.service_bus import SEND_SECONDS_MAX, scheduled_time
from shared.domain.failures import BUS, BUSY, CREDENTIAL, Failure, make_error
from shared.domain.message import Message
from shared.ports import Bus, DeadLetter
from shared.settings import Connection
from spark.send.amqp import (
    AmqpConnectionLost,
    AmqpFailed,
    AmqpLink,
    AmqpRefused,
    QueueAddress,
    Token,
    TokenRefused,
)
from spark.send.encoding import encode_schedule, encode_sections, encode_whole_batch

TLS_PORT = 5671
TOKEN_SCOPE = "https://servicebus.azure.net/.default"  # noqa: S105 - a name, no secret
SAS, JWT = "servicebus.windows.net:sastoken", "jwt"
SAS_SECONDS = 3600.0
# Encoded messages are kept until every region has had time to take them.
KEPT_BYTES_MAX = 4_000_000
# A data section of a batch has so many bytes beside the message in it; the envelope has the rest.
SECTION_BYTES, ENVELOPE_BYTES = 8, 1_200
# The table of failures has the SDK's exceptions where the SDK makes some of these conditions.
CODES: Mapping[str, str] = {
    "amqp:link:message-size-exceeded": "MessageSizeExceededError",
    "amqp:not-found": "MessagingEntityNotFoundError",
    "com.microsoft:entity-disabled": "MessagingEntityDisabledError",
    "amqp:unauthorized-access": "ServiceBusAuthorizationError",
    "com.microsoft:auth-failed": "ServiceBusAuthorizationError",
    "amqp:resource-limit-exceeded": "ServiceBusQuotaExceededError",
    "com.microsoft:server-busy": BUSY,
}


class EncodedBus:
    """See ports.Bus: a connection to each queue, made at its first use; `other` does all else."""

    def __init__(
        self,
        connections: Mapping[str, Connection],
        other: Bus,
        *,
        send_seconds_max: float = SEND_SECONDS_MAX,
    ) -> None:
        self.connections = connections
        self.other = other
        self.send_seconds_max = send_seconds_max
        self.links: dict[tuple[str, str], AmqpLink] = {}
        self.turns: dict[tuple[str, str], asyncio.Lock] = {}
        self.credentials: dict[str, DefaultAzureCredential] = {}
        self.kept: dict[int, tuple[Message, bytes]] = {}
        self.kept_bytes = 0

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """See Bus.send: as few batches as the queue's limit allows, one after another.

        A send that has no answer after `send_seconds_max` is an unknown outcome as well.
        """
        schedule = encode_schedule(scheduled_time(delay_seconds))
        parts = [schedule + self.encode(message) for message in messages]
        with naming_failures(region, queue):
            try:
                async with asyncio.timeout(self.send_seconds_max):
                    try:
                        await self.send_parts(region, queue, messages, parts)
                    except AmqpConnectionLost:
                        # Service Bus closes connections now and then. What it took all the same is
                        # recognised by its numbers when it comes again.
                        await self.send_parts(region, queue, messages, parts)
            except TimeoutError:
                # Whoever else waits for this connection would wait for the same silence.
                self.drop(region, queue, "the service does not answer")
                raise

    async def send_parts(
        self, region: str, queue: str, messages: Sequence[Message], parts: Sequence[bytes]
    ) -> None:
        link = await self.connect(region, queue)
        # All of them are found first: of messages with one that no batch takes none is sent.
        for start, end in list(split_parts(parts, link.batch_bytes_max)):
            await link.send(encode_whole_batch(messages[start], parts[start:end]))

    async def look(self, region: str, queue: str) -> None:
        """See Bus.look: the link is opened, and kept for the messages to come."""
        with naming_failures(region, queue):
            await self.connect(region, queue)

    async def end_dead_letters(
        self, region: str, queue: str, limit: int, end: Callable[[DeadLetter], Awaitable[bool]]
    ) -> int:
        return await self.other.end_dead_letters(region, queue, limit, end)

    async def close(self) -> None:
        """Close every connection; the next use connects again."""
        links, self.links = list(self.links.values()), {}
        credentials, self.credentials = list(self.credentials.values()), {}
        await asyncio.gather(*(link.close() for link in links))
        await asyncio.gather(*(credential.close() for credential in credentials))

    def encode(self, message: Message) -> bytes:
        """A message's bytes, which are made once for all regions."""
        found = self.kept.get(id(message))
        if found is not None and found[0] is message:
            return found[1]
        encoded = encode_sections(message)
        self.kept[id(message)] = (message, encoded)
        self.kept_bytes += len(encoded)
        while self.kept_bytes > KEPT_BYTES_MAX:
            _, oldest = self.kept.pop(next(iter(self.kept)))
            self.kept_bytes -= len(oldest)
        return encoded

    async def connect(self, region: str, queue: str) -> AmqpLink:
        """The link to a queue; a new one if there is none, or if the last one ended."""
        place = (region, queue)
        async with self.turns.setdefault(place, asyncio.Lock()):
            link = self.links.get(place)
            if link is None or link.failure is not None:
                address = find_address(self.connections[region], queue)
                link = await AmqpLink.open(address, partial(self.get_token, region, address))
                self.links[place] = link
            return link

    def drop(self, region: str, queue: str, why: str) -> None:
        link = self.links.pop((region, queue), None)
        if link is not None:
            link.fail(AmqpConnectionLost(why))

    async def get_token(self, region: str, address: QueueAddress) -> Token:
        """A token for a queue: from a connection string, or for an identity."""
        connection = self.connections[region]
        if connection.connection_string is None:
            if region not in self.credentials:
                identity = DefaultAzureCredential(managed_identity_client_id=connection.client_id)
                self.credentials[region] = identity
            given = await self.credentials[region].get_token(TOKEN_SCOPE)
            return Token(given.token, JWT, given.expires_on)
        found = parse_connection_string(connection.connection_string)
        if found.shared_access_signature is not None:
            expiry = found.shared_access_signature.partition("se=")[2].partition("&")[0]
            expires_at = float(expiry) if expiry.isdecimal() else float("inf")
            return Token(found.shared_access_signature, SAS, expires_at)
        name, key = found.shared_access_key_name or "", found.shared_access_key or ""
        return sign(address.audience, name, key, time.time() + SAS_SECONDS)


def find_address(connection: Connection, queue: str) -> QueueAddress:
    """Return where to connect; raises ValueError for what is no connection string."""
    if connection.connection_string is None:
        return QueueAddress(connection.endpoint or "", TLS_PORT, queue)
    words = connection.connection_string.lower().split(";")
    is_emulator = "usedevelopmentemulator=true" in words
    place = urlsplit(parse_connection_string(connection.connection_string).endpoint)
    return QueueAddress(
        place.hostname or "", (is_emulator and place.port) or TLS_PORT, queue, not is_emulator
    )


def sign(audience: str, name: str, key: str, expires_at: float) -> Token:
    """A shared access signature.

    https://learn.microsoft.com/azure/service-bus-messaging/service-bus-sas
    """
    resource, expiry = quote_plus(audience), f"{expires_at:.0f}"
    digest = hmac.digest(key.encode(), f"{resource}\n{expiry}".encode(), sha256)
    signature = quote_plus(b64encode(digest))
    text = f"SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={quote_plus(name)}"
    return Token(text, SAS, expires_at)


def split_parts(parts: Sequence[bytes], limit: int) -> Iterator[tuple[int, int]]:
    """Yield the neighbours that fit one batch; raises AmqpRefused for one too large for any."""
    start, size = 0, ENVELOPE_BYTES
    for place, part in enumerate(parts):
        own = len(part) + SECTION_BYTES
        if ENVELOPE_BYTES + own > limit:
            refusal = f"{len(part)} bytes, and the queue takes {limit}"
            raise AmqpRefused("amqp:link:message-size-exceeded", refusal)
        if size + own > limit:
            yield start, place
            start, size = place, ENVELOPE_BYTES
        size += own
    yield start, len(parts)


@contextmanager
def naming_failures(region: str, queue: str) -> Iterator[None]:
    """Turn what sending raises into errors of the engine's."""
    try:
        yield
    except (AmqpFailed, AzureError, TimeoutError, ValueError) as error:
        place = f"(queue {queue!r} of {region}: {error})"
        raise make_error(Failure(BUS, failure_code(error)), place) from error


def failure_code(error: Exception) -> str:
    """Return what an error says, in the terms of the table of failures."""
    match error:
        case AmqpRefused():
            return CODES.get(error.condition, error.condition)
        case TokenRefused() | AzureError() | ValueError():
            return CREDENTIAL
    return type(error).__name__
