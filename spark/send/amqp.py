"""One sending link to a queue of Service Bus, over an AMQP 1.0 connection of its own.

Only what sending encoded batches needs is here: the handshake, a token on `$cbs`, one session, one
link, its credit, and outcomes. The specification's parts 2 (transport) and 5 (security), and what
Service Bus makes of them:
https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-transport-v1.0-os.html
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-protocol-guide
"""

import asyncio
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from spark.send.encoding import (
    APPLICATION_PROPERTIES,
    BATCH_FORMAT,
    PROPERTIES,
    VALUE,
    Described,
    NoAmqpValue,
    Symbol,
    Uint,
    Ulong,
    decode_value,
    encode_value,
)

AMQP, SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
AMQP_FRAME, SASL_FRAME = 0, 1
HEADER_BYTES = 8
OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DISPOSITION, DETACH, END, CLOSE = 0x15, 0x16, 0x17, 0x18
SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
SOURCE, TARGET, ACCEPTED, REJECTED = 0x28, 0x29, 0x24, 0x25
IS_SENDER, IS_RECEIVER = False, True
ANONYMOUS = Symbol("ANONYMOUS")
# The names of the three links.
REQUESTS, RESPONSES, QUEUE = "requests", "responses", "queue"
CBS = "$cbs"
TOKEN_ACCEPTED = 200
MESSAGE_FORMAT = 0  # of a message that is no batch
RESPONSES_AT_ONCE = Uint(10)
EMPTY_FRAME = struct.pack(">IBBH", HEADER_BYTES, 2, AMQP_FRAME, 0)
FRAME_BYTES_MAX = 65_536
# Before the payload of a transfer there is its header and a performative of a few fields.
TRANSFER_BYTES = 64
WINDOW = Uint(5_000)
SERIAL_LIMIT = 1 << 32  # delivery-ids and counts are 32 bits wide and wrap
# The property of a link that says how large a batch may be, where a message may be larger.
BATCH_BYTES_MAX = Symbol("com.microsoft:max-message-batch-size")
STANDARD_BATCH_BYTES, PREMIUM_BATCH_BYTES = 256 * 1024, 1024 * 1024
CLOSE_SECONDS = 1.0
# A token is renewed when so much of its life is over.
RENEWED_AFTER, RENEWED_SECONDS_MIN = 0.8, 1.0


class AmqpFailed(Exception):
    """Something was not sent, or nobody knows whether it was."""


class AmqpRefused(AmqpFailed):
    """The service has refused a delivery, a link or a token: the AMQP condition, and its words."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition


class AmqpConnectionLost(AmqpFailed):
    """The connection broke or could not be made, so what was under way has no outcome."""


class TokenRefused(AmqpFailed):
    """The service does not take the token, or knows no such queue."""


@dataclass(frozen=True, slots=True)
class Token:
    """A proof for `$cbs`: the text, its kind, and when it expires in seconds since 1970."""

    text: str
    kind: str
    expires_at: float


type GetToken = Callable[[], Awaitable[Token]]


@dataclass(frozen=True, slots=True)
class QueueAddress:
    """A queue, and where its namespace listens; `has_tls` is false for a development emulator."""

    host: str
    port: int
    queue: str
    has_tls: bool = True

    @property
    def audience(self) -> str:
        """The address that a token must be for."""
        place = self.host if self.has_tls else f"{self.host}:{self.port}"
        return f"sb://{place}/{self.queue}"


class AmqpLink:
    """A link to a queue, open until `failure` says why it is not; then a new one has to be opened.

    Several sends may be under way; what they send is taken in the order of the calls.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: QueueAddress
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.address = address
        self.failure: Exception | None = None
        self.frame_bytes_max = FRAME_BYTES_MAX
        self.batch_bytes_max = STANDARD_BATCH_BYTES
        # How many frames the peer takes before it says more, and how many each side has sent.
        self.window = 0
        self.frames_sent = 0
        self.frames_received = 0
        self.deliveries = 0
        self.links: dict[str, LinkState] = {}
        self.remote_handles: dict[int, LinkState] = {}
        # What the peer has to say: of a performative, a link, a delivery or a request.
        self.awaited: dict[tuple[str, int | str], asyncio.Future[Any]] = {}
        self.response = b""
        self.changed = asyncio.Event()
        self.turn = asyncio.Lock()
        self.tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def open(cls, address: QueueAddress, get_token: GetToken) -> "AmqpLink":
        """Connect, show a token and attach; the caller bounds the time.

        Raises AmqpConnectionLost, TokenRefused, AmqpRefused, and what `get_token` raises.
        """
        context = ssl.create_default_context() if address.has_tls else None
        try:
            reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        except OSError as error:
            raise AmqpConnectionLost(f"{address.host}:{address.port}: {error}") from error
        link = cls(reader, writer, address)
        try:
            await link.shake_hands()
            link.start(link.read_frames())
            await link.begin()
            token = await get_token()
            await link.show_token(token)
            await link.attach_queue()
        except BaseException as error:
            link.fail(AmqpConnectionLost("it was given up while it was opened"))
            if isinstance(error, OSError | EOFError | NoAmqpValue | IndexError | TypeError):
                raise AmqpConnectionLost(f"{address.host}:{address.port}: {error}") from error
            raise
        link.start(link.renew_tokens(token, get_token))
        return link

    async def send(self, batch: bytes) -> None:
        """Send a batch; when this returns all of it was taken.

        Raises AmqpRefused where it was refused, and AmqpConnectionLost where nobody knows. It
        waits for as long as the service says nothing; the caller bounds the time.
        """
        await (await self.transfer(self.links[QUEUE], batch, BATCH_FORMAT))

    async def close(self) -> None:
        """Say that the connection ends, and do not wait long for the answer."""
        with suppress(OSError, TimeoutError, AmqpRefused, AmqpConnectionLost):
            async with asyncio.timeout(CLOSE_SECONDS):
                if self.failure is None:
                    self.write(CLOSE, [None])
                    await self.writer.drain()
                while self.failure is None:
                    await self.wait_for_change()
        self.fail(AmqpConnectionLost("it was closed"))

    # Opening

    async def shake_hands(self) -> None:
        """Agree on SASL. Who sends is said by a token afterwards."""
        self.writer.write(SASL)
        await self.expect_protocol(SASL)
        offered = (await self.expect_sasl(SASL_MECHANISMS))[0]
        names = offered if isinstance(offered, list) else [offered]
        if ANONYMOUS not in names:
            offer = ", ".join(map(str, names))
            raise AmqpConnectionLost(f"no SASL mechanism in common with {offer}")
        self.write(SASL_INIT, [ANONYMOUS, None, self.address.host], kind=SASL_FRAME)
        if (await self.expect_sasl(SASL_OUTCOME))[0] != 0:
            raise AmqpConnectionLost("the SASL handshake was refused")
        self.writer.write(AMQP)
        await self.expect_protocol(AMQP)

    async def expect_protocol(self, header: bytes) -> None:
        if await self.reader.readexactly(HEADER_BYTES) != header:
            raise AmqpConnectionLost(f"{self.address.host}:{self.address.port} speaks no AMQP 1.0")

    async def expect_sasl(self, code: int) -> list[Any]:
        performative, _ = decode_value(await self.read_frame())
        if not isinstance(performative, Described) or performative.descriptor != code:
            raise AmqpConnectionLost("the SASL handshake is not that of the specification")
        return list(performative.value)

    async def begin(self) -> None:
        """Open the connection and its session."""
        name = f"lockstep-feed-{token_hex(8)}"
        self.write(OPEN, [name, self.address.host, Uint(FRAME_BYTES_MAX), Uint(0)])
        fields = await self.expect("performative", OPEN)
        self.frame_bytes_max = min(FRAME_BYTES_MAX, get_field(fields, 2) or FRAME_BYTES_MAX)
        if idle_milliseconds := get_field(fields, 4):
            # A peer that hears nothing for so long may close (part 2, section 2.4.5).
            self.start(self.keep_alive(idle_milliseconds / 2_000))
        self.write(BEGIN, [None, Uint(0), WINDOW, WINDOW, Uint(7)])
        self.window = get_field(await self.expect("performative", BEGIN), 2) or 0

    async def show_token(self, token: Token) -> None:
        """Authorize for the queue, now or again; raises TokenRefused."""
        reply_to = f"responses-{id(self)}"
        if REQUESTS not in self.links:
            await self.attach(REQUESTS, IS_SENDER, reply_to, CBS)
            await self.attach(RESPONSES, IS_RECEIVER, CBS, reply_to)
            self.give_credit()
        identity = token_hex(8)
        properties = {"operation": "put-token", "type": token.kind, "name": self.address.audience}
        sections = {
            PROPERTIES: [identity, None, CBS, None, reply_to],
            APPLICATION_PROPERTIES: properties,
            VALUE: token.text,
        }
        request = b"".join(encode_value(Described(*section)) for section in sections.items())
        response = self.expect("request", identity)
        try:
            await (await self.transfer(self.links[REQUESTS], request, MESSAGE_FORMAT))
            answer = await response
        finally:
            self.awaited.pop(("request", identity), None)
        status = answer.get("status-code", 0)
        if not TOKEN_ACCEPTED <= status < TOKEN_ACCEPTED + 100:
            raise TokenRefused(f"{status}: {answer.get('status-description')}")

    async def attach_queue(self) -> None:
        """Attach to the queue, and read how large a batch it takes; raises AmqpRefused."""
        fields = await self.attach(QUEUE, IS_SENDER, f"feed-{id(self)}", self.address.queue)
        message_bytes = get_field(fields, 10) or STANDARD_BATCH_BYTES
        # As azure-servicebus has it, for namespaces that do not say what a batch may have.
        usual = min(PREMIUM_BATCH_BYTES, message_bytes)
        self.batch_bytes_max = (get_field(fields, 13) or {}).get(BATCH_BYTES_MAX) or usual

    async def attach(self, name: str, role: bool, source: str, target: str) -> list[Any]:
        """Attach a link of the session; returns what the peer says of its end of it."""
        attached = self.expect("link", name)
        link = self.links[name] = LinkState(Uint(len(self.links)))
        ends = [Described(SOURCE, [source]), Described(TARGET, [target])]
        first = None if role is IS_RECEIVER else Uint(0)
        self.write(
            ATTACH, [name, link.handle, role, None, None, *ends, None, None, first, Ulong(0)]
        )
        fields: list[Any] = await attached
        return fields

    def give_credit(self) -> None:
        """Let the peer answer requests for tokens."""
        received = Uint(self.frames_received)
        link = [self.links[RESPONSES].handle, received, RESPONSES_AT_ONCE]
        self.write(FLOW, [received, WINDOW, Uint(self.frames_sent), WINDOW, *link])

    # While it is open

    async def transfer(
        self, link: "LinkState", payload: bytes, message_format: int
    ) -> asyncio.Future[None]:
        """Send one message once there is credit for it; the answer is its outcome."""
        async with self.turn:
            while not (link.credit > 0 and self.window > 0):
                await self.wait_for_change()
            number, self.deliveries = self.deliveries, (self.deliveries + 1) % SERIAL_LIMIT
            outcome = self.expect("delivery", number)
            link.credit -= 1
            link.sent += 1
            delivery = [link.handle, Uint(number), struct.pack(">I", number), Uint(message_format)]
            size = self.frame_bytes_max - TRANSFER_BYTES
            try:
                for start in range(0, len(payload), size):
                    while self.window <= 0:
                        await self.wait_for_change()
                    is_more = start + size < len(payload)
                    part = payload[start : start + size]
                    self.write(TRANSFER, [*delivery, False, is_more], part)
                    self.window -= 1
                    self.frames_sent = (self.frames_sent + 1) % SERIAL_LIMIT
                await self.writer.drain()
            except BaseException as error:
                # Half of a message stands in the way of everything after it.
                outcome.cancel()
                self.fail(AmqpConnectionLost(f"it broke within a message: {error}"))
                if isinstance(error, OSError):
                    raise AmqpConnectionLost(str(error)) from error
                raise
        return outcome

    async def wait_for_change(self) -> None:
        """Wait until the peer has said something; raises why the link is open no more."""
        if self.failure is None:
            self.changed.clear()
            await self.changed.wait()
        if self.failure is not None:
            raise self.failure

    def expect(self, kind: str, key: int | str) -> asyncio.Future[Any]:
        future = self.awaited[kind, key] = asyncio.get_running_loop().create_future()
        return future

    def answer(self, kind: str, key: int | str, said: Any) -> None:
        """Give whoever waits for it what the peer has said, or raise it if it is an error."""
        future = self.awaited.pop((kind, key), None)
        if future is None or future.done():
            return
        if isinstance(said, Exception):
            future.set_exception(said)
        else:
            future.set_result(said)

    async def keep_alive(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self.writer.write(EMPTY_FRAME)

    async def renew_tokens(self, token: Token, get_token: GetToken) -> None:
        while True:
            life = token.expires_at - time.time()
            await asyncio.sleep(max(life * RENEWED_AFTER, RENEWED_SECONDS_MIN))
            token = await get_token()
            await self.show_token(token)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run beside everything else; what it raises ends the link."""

        async def run() -> None:
            try:
                await work
            except Exception as error:
                text = str(error) or type(error).__name__
                self.fail(error if isinstance(error, AmqpFailed) else AmqpConnectionLost(text))

        self.tasks.append(asyncio.create_task(run()))

    def fail(self, error: Exception) -> None:
        """End the link; everybody who waits for it hears why. Later calls do nothing."""
        if self.failure is not None:
            return
        self.failure = error
        for future in self.awaited.values():
            if not future.done():
                future.set_exception(error)
                # Who waited may be gone; asking says that somebody has heard of it.
                future.exception()
        self.changed.set()
        current = asyncio.current_task()
        for task in self.tasks:
            if task is not current:
                task.cancel()
        self.writer.close()

    def write(
        self, code: int, fields: Sequence[Any], payload: bytes = b"", kind: int = AMQP_FRAME
    ) -> None:
        """Write a frame; raises why the link is open no more."""
        if self.failure is not None:
            raise self.failure
        body = encode_value(Described(code, list(fields)))
        size = HEADER_BYTES + len(body) + len(payload)
        self.writer.write(struct.pack(">IBBH", size, 2, kind, 0) + body + payload)

    # What the peer says

    async def read_frames(self) -> None:
        while True:
            body = await self.read_frame()
            if body:
                performative, end = decode_value(body)
                if not isinstance(performative, Described):
                    raise NoAmqpValue("a frame without a performative")
                self.take(performative.descriptor, performative.value, body[end:])
                self.changed.set()

    async def read_frame(self) -> bytes:
        """The body of the next frame."""
        size, offset = struct.unpack(">IB", (await self.reader.readexactly(HEADER_BYTES))[:5])
        if not HEADER_BYTES <= 4 * offset <= size <= FRAME_BYTES_MAX:
            raise AmqpConnectionLost(f"a frame of {size} bytes that begins after {4 * offset}")
        return (await self.reader.readexactly(size - HEADER_BYTES))[4 * offset - HEADER_BYTES :]

    def take(self, code: int, fields: list[Any], payload: bytes) -> None:
        """Do what a performative asks for; raises to end the link."""
        match code:
            case 0x10 | 0x11:  # open, begin
                self.answer("performative", code, fields)
            case 0x12:
                self.take_attach(fields)
            case 0x13:
                self.take_flow(fields)
            case 0x14:
                self.take_response(fields, payload)
            case 0x15:
                self.take_outcomes(fields)
            case 0x16 | 0x17 | 0x18:  # detach, end, close
                raise read_error(get_field(fields, 2 if code == DETACH else 0))

    def take_attach(self, fields: list[Any]) -> None:
        link = self.links.get(fields[0])
        if link is None:
            raise AmqpConnectionLost("the peer attaches a link of its own")
        self.remote_handles[fields[1]] = link
        # A refused link has no end, and a detach follows that says why.
        if get_field(fields, 6) is not None:
            self.answer("link", fields[0], fields)

    def take_flow(self, fields: list[Any]) -> None:
        begun = get_field(fields, 0) or 0
        self.window = begun + fields[1] - self.frames_sent
        link = self.remote_handles.get(get_field(fields, 4))
        if link is not None and get_field(fields, 6) is not None:
            link.credit = (get_field(fields, 5) or 0) + fields[6] - link.sent
        if get_field(fields, 9) and RESPONSES in self.links:
            self.give_credit()

    def take_response(self, fields: list[Any], payload: bytes) -> None:
        """Take what comes on the only link that receives: an answer to a request for a token."""
        self.frames_received += 1
        self.response += payload
        if get_field(fields, 5):  # more of it follows
            return
        sections, self.response = split_sections(self.response), b""
        accepted = Described(ACCEPTED, [])
        self.write(DISPOSITION, [IS_RECEIVER, Uint(fields[1]), None, True, accepted])
        self.give_credit()
        identity = get_field(sections.get(PROPERTIES, []), 5)
        self.answer("request", identity, sections.get(APPLICATION_PROPERTIES, {}))

    def take_outcomes(self, fields: list[Any]) -> None:
        first, state = fields[1], get_field(fields, 4)
        last = first if get_field(fields, 2) is None else fields[2]
        # Released or modified: the peer has done nothing, or does not say.
        outcome: Exception | None = AmqpConnectionLost(f"no outcome but {state}")
        if isinstance(state, Described) and state.descriptor == ACCEPTED:
            outcome = None
        elif isinstance(state, Described) and state.descriptor == REJECTED:
            outcome = read_error(get_field(state.value, 0))
        for number in range(first, last + 1):
            self.answer("delivery", number, outcome)


@dataclass(eq=False, slots=True)
class LinkState:
    """One of the links: `credit` is how many messages it takes now, `sent` how many it got."""

    handle: Uint
    credit: int = 0
    sent: int = 0


def get_field(fields: Sequence[Any], place: int) -> Any:
    """A field of a performative; those at the end may be left out."""
    return fields[place] if place < len(fields) else None


def read_error(error: object) -> Exception:
    """Return why the peer has refused something or ended a link, a session or the connection."""
    if isinstance(error, Described) and isinstance(error.value, list) and error.value:
        return AmqpRefused(str(error.value[0]), str(get_field(error.value, 1) or ""))
    return AmqpConnectionLost("the service has closed it without a reason")


def split_sections(message: bytes) -> dict[int, Any]:
    """The sections of a message, by their codes."""
    sections: dict[int, Any] = {}
    at = 0
    while at < len(message):
        section, at = decode_value(message, at)
        sections[section.descriptor] = section.value
    return sections
