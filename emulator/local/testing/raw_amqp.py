"""A client that speaks AMQP frame by frame, as other SDKs do than those that run here."""

import socket
import struct
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from hmac import digest
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from proton import Data, Described, Message, symbol, uint, ulong

from local.testing.failures import CloudFailed

# Those of every connection string: they are the official emulator's, and protect nothing.
KEY_NAME, KEY = "RootManageSharedAccessKey", "SAS_KEY_VALUE"
SECONDS_MAX = 60.0  # longer than an answer takes on a machine with much else to do
AMQP, SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
OPEN, BEGIN, ATTACH, FLOW, TRANSFER = 0x10, 0x11, 0x12, 0x13, 0x14
DISPOSITION, DETACH, END, CLOSE = 0x15, 0x16, 0x17, 0x18
SASL_MECHANISMS, SASL_INIT, SASL_OUTCOME = 0x40, 0x41, 0x44
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30
ACCEPTED, REJECTED, MODIFIED = 0x24, 0x25, 0x27
SENDER, RECEIVER = False, True
ATTACH_FIELDS = (
    *("name", "handle", "role", "snd-settle-mode", "rcv-settle-mode", "source", "target"),
    *("unsettled", "incomplete-unsettled", "initial-delivery-count", "max-message-size"),
    *("offered-capabilities", "desired-capabilities", "properties"),
)
BATCH = 0x80013700


class UnexpectedAnswer(CloudFailed):
    """The namespace did not answer what it has to."""


def require(holds: bool, what: object) -> None:
    if not holds:
        raise UnexpectedAnswer(str(what))


class Frame(NamedTuple):
    """A performative, its fields as far as they are given, and the bytes behind it."""

    code: int
    fields: list[Any]
    payload: bytes
    channel: int


def encode(value: Any) -> bytes:
    data = Data()
    data.put_object(value)
    return bytes(data.encode())


def encode_list(*encoded: bytes) -> bytes:
    """A list of values that are encoded already."""
    content = struct.pack(">I", len(encoded)) + b"".join(encoded)
    return b"\xd0" + struct.pack(">I", len(content)) + content


def encode_nested(depth: int) -> bytes:
    """So many lists in each other, more than Proton's Python binding can encode."""
    encoded = encode_list()
    for _ in range(depth):
        encoded = encode_list(encoded)
    return encoded


def described(code: int, *fields: Any) -> Described:
    return Described(ulong(code), list(fields))


def enclose(body: bytes, *, kind: int = 0, channel: int = 0) -> bytes:
    """A frame with this body."""
    return struct.pack(">IBBH", 8 + len(body), 2, kind, channel) + body


def framed(code: int, *fields: Any, payload: bytes = b"", kind: int = 0, channel: int = 0) -> bytes:
    """A performative as a frame."""
    return enclose(encode(described(code, *fields)) + payload, kind=kind, channel=channel)


def parse_frame(frame: bytes) -> Frame:
    """A frame that is whole and not empty."""
    return parse_body(frame[4 * frame[4] :], int.from_bytes(frame[6:8]))


def parse_body(body: bytes, channel: int) -> Frame:
    data = Data()
    used = data.decode(body)
    data.rewind()
    data.next()
    performative: Any = data.get_object()
    return Frame(performative.descriptor, performative.value, body[used:], channel)


def sign(audience: str) -> str:
    """A token as the documentation says to make it."""
    resource, expiry = quote_plus(audience), str(int(time.time()) + 600)
    signature = b64encode(digest(KEY.encode(), f"{resource}\n{expiry}".encode(), sha256)).decode()
    signed = f"sr={resource}&sig={quote_plus(signature)}&se={expiry}&skn={KEY_NAME}"
    return f"SharedAccessSignature {signed}"


def find_port(connection_string: str) -> tuple[str, int]:
    """Host and port of a namespace."""
    host, port = connection_string.partition("://")[2].partition(";")[0].split(":")
    return host, int(port)


class RawClient:
    """A client on a socket that is connected; nothing is said before a method says it."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._received = b""
        self._handles = count()
        self.delivery_id = 0

    def write(self, code: int, *fields: Any, payload: bytes = b"", kind: int = 0) -> None:
        self.socket.sendall(framed(code, *fields, payload=payload, kind=kind))

    def write_body(self, body: bytes) -> None:
        """Send what is encoded already, as one frame."""
        self.socket.sendall(enclose(body))

    def read_bytes(self, size: int) -> bytes:
        while len(self._received) < size:
            more = self.socket.recv(65_536)
            if not more:
                raise EOFError(self._received)
            self._received += more
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def read(self) -> Frame:
        """The next frame that is not empty."""
        return parse_body(*self.read_body())

    def read_body(self) -> tuple[bytes, int]:
        """Read the next frame that is not empty: its body, as it is encoded, and its channel."""
        body = b""
        while not body:
            size, offset, _, channel = struct.unpack(">IBBH", self.read_bytes(8))
            self.read_bytes(4 * offset - 8)
            body = self.read_bytes(size - 4 * offset)
        return body, channel

    def expect(self, code: int) -> Frame:
        """The next frame of this kind; others are passed over, but for the end of the road."""
        while (frame := self.read()).code != code:
            require(frame.code not in (END, CLOSE), frame)
        return frame

    def authenticate(self, mechanism: str, response: bytes | None = None) -> int:
        """The code of the outcome."""
        self.socket.sendall(SASL)
        require(self.read_bytes(8) == SASL, "another protocol than SASL")
        self.expect(SASL_MECHANISMS)
        self.write(SASL_INIT, symbol(mechanism), response, kind=1)
        return int(self.expect(SASL_OUTCOME).fields[0])

    def open(self) -> None:
        """The protocol, the connection, and one session on channel 0."""
        self.socket.sendall(AMQP)
        self.write(OPEN, "raw", "localhost", uint(65_536))
        self.write(BEGIN, None, uint(0), uint(5000), uint(5000))
        require(self.read_bytes(8) == AMQP, "another protocol than AMQP")
        self.expect(BEGIN)

    def attach(self, role: bool, address: str, **more: Any) -> int:
        """Attach, and return the link's handle, whatever the answer is.

        `fields` are others of the attach, by their names.
        """
        handle = next(self._handles)
        ends = (more.get("source", described(SOURCE, address)), described(TARGET, address))
        if role is SENDER:
            ends = (described(SOURCE, f"client-{handle}"), more.get("target", ends[1]))
        name = f"link-{handle}"
        first = uint(0) if role is SENDER else None
        given = {
            "name": name,
            "handle": uint(handle),
            "role": role,
            "source": ends[0],
            "target": ends[1],
            "initial-delivery-count": first,
        } | more.get("fields", {})
        self.write(ATTACH, *(given.get(field) for field in ATTACH_FIELDS))
        return handle

    def give_credit(self, handle: int, credit: int = 10) -> None:
        windows = (uint(0), uint(5000), uint(self.delivery_id), uint(5000))
        self.write(FLOW, *windows, uint(handle), uint(0), uint(credit))

    def transfer(self, handle: int, payload: bytes, **more: Any) -> int:
        """Send, not settled; returns the delivery-id."""
        delivery_id = more.get("delivery_id", self.delivery_id)
        tag, kind = str(delivery_id).encode(), uint(more.get("kind", 0))
        self.write(
            TRANSFER, uint(handle), uint(delivery_id), tag, kind, False, False, payload=payload
        )
        self.delivery_id = max(self.delivery_id, delivery_id) + 1
        return int(delivery_id)

    def outcome(self) -> tuple[int, Any]:
        """The delivery-id, and the state, of the next disposition."""
        fields = self.expect(DISPOSITION).fields
        return fields[1], fields[4]

    def put_token(self, path: str) -> Any:
        """Authorize for a path; the answer."""
        requests, responses = self.attach(SENDER, "$cbs"), self.attach(RECEIVER, "$cbs")
        self.give_credit(responses)
        request = Message(
            id="token",
            reply_to="$cbs",
            body=sign(f"sb://localhost/{path}"),
            properties={"operation": "put-token", "type": "servicebus.windows.net:sastoken"},
        )
        self.transfer(requests, bytes(request.encode()))
        return self.response()

    def response(self) -> Any:
        message = Message()
        message.decode(self.expect(TRANSFER).payload)
        return message


@contextmanager
def raw_client(connection_string: str) -> Iterator[RawClient]:
    """Connected, and nothing said yet."""
    with socket.create_connection(find_port(connection_string), timeout=SECONDS_MAX) as connected:
        yield RawClient(connected)


@contextmanager
def opened_client(
    connection_string: str, path: str, mechanism: str = "MSSBCBS"
) -> Iterator[RawClient]:
    """With a session, and authorized for a path: the way of the .NET SDK."""
    with raw_client(connection_string) as client:
        require(client.authenticate(mechanism) == 0, f"{mechanism} is refused")
        client.open()
        require(client.put_token(path).properties["status-code"] == 202, "the token is refused")
        yield client
