"""The bytes of a client before AMQP: a protocol header, and its choice of a SASL mechanism.

The .NET SDK offers MSSBCBS only, others ANONYMOUS; both authorize on `$cbs` afterwards. Who takes
PLAIN has shown the key already. Proton's own SASL layer knows ANONYMOUS only, so the exchange
(specification part 5, section 5.3) is over before Proton sees a byte.
"""

import struct

from local.servicebus.amqp.message_format import (
    Undecodable,
    content_of,
    elements_of,
    encode_symbol,
    end_of,
)

HEADER_BYTES, FRAME_HEADER_BYTES, SASL_FRAME_BYTES_MAX = 8, 8, 4096
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44
ACCEPTED, NOT_AUTHENTICATED = 0, 1
ANONYMOUS, PLAIN, MSSBCBS = "ANONYMOUS", "PLAIN", "MSSBCBS"
HTTP_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"PATCH ", b"DELETE ", b"OPTIONS ")
TLS_HANDSHAKE = b"\x16\x03"
# What a client that speaks TLS calls a wrong version: the known sign of a port without it.
TLS_REFUSAL = b"This port speaks AMQP 1.0 over TCP and HTTP: no TLS\n"


class OpeningRefused(Exception):
    """The opening is refused: `reply` tells the client so, and its connection is closed."""

    def __init__(self, reply: bytes) -> None:
        super().__init__()
        self.reply = reply


class HttpOpened(Exception):
    """The client speaks HTTP: `first` are its first bytes."""

    def __init__(self, first: bytes) -> None:
        super().__init__()
        self.first = first


class Opening:
    """Everything that one client sends before AMQP."""

    def __init__(self, key_name: str, key: str) -> None:
        self._plain = f"\0{key_name}\0{key}".encode()
        self._unread = b""
        self._is_in_sasl = False
        self.has_key = False  # shown by PLAIN: nothing more is to be authorized

    def read(self, data: bytes) -> tuple[bytes, bytes | None]:
        """Return what to reply, and the first bytes of AMQP; None as long as there are none.

        Bytes that are no beginning of anything known here count as AMQP, which refuses them.
        Raises OpeningRefused, HttpOpened.
        """
        self._unread += data
        reply = b""
        if not self._is_in_sasl:
            if len(self._unread) < HEADER_BYTES:
                return b"", None
            if self._unread.startswith(HTTP_METHODS):
                raise HttpOpened(self._unread)
            if self._unread.startswith(TLS_HANDSHAKE):
                raise OpeningRefused(TLS_REFUSAL)
            if not self._unread.startswith(SASL_HEADER):
                return b"", self._unread
            self._is_in_sasl = True
            self._unread = self._unread[HEADER_BYTES:]
            names = [encode_symbol(name)[1:] for name in (MSSBCBS, PLAIN, ANONYMOUS)]
            body = bytes((len(names), 0xA3)) + b"".join(names)
            reply = SASL_HEADER + write_sasl_frame(MECHANISMS, bytes((0xE0, len(body))) + body)
        size = int.from_bytes(self._unread[:4])
        if len(self._unread) < FRAME_HEADER_BYTES or len(self._unread) < size:
            if size > SASL_FRAME_BYTES_MAX:
                raise OpeningRefused(write_outcome(NOT_AUTHENTICATED))
            return reply, None
        frame, rest = self._unread[:size], self._unread[size:]
        try:
            mechanism, response = read_init(frame)
        except (Undecodable, IndexError, UnicodeDecodeError):
            mechanism, response = "", b""
        # The identity to act as, which comes first, may be left out or be the key's name.
        self.has_key = mechanism == PLAIN and response[response.find(b"\0") :] == self._plain
        if not (self.has_key or mechanism in (ANONYMOUS, MSSBCBS)):
            raise OpeningRefused(reply + write_outcome(NOT_AUTHENTICATED))
        return reply + write_outcome(ACCEPTED), rest


def read_init(frame: bytes) -> tuple[str, bytes]:
    """The mechanism of a sasl-init frame, and its initial response."""
    start = frame[4] * 4
    if frame[start : start + 3] != bytes((0, 0x53, INIT)):
        raise Undecodable("no sasl-init")
    end_of(frame, start)  # raises if it is cut off
    fields = [content_of(frame, at) for at, _ in elements_of(frame, start + 3)]
    contents = [frame[at : at + size] for at, size in fields]
    return contents[0].decode("ascii"), contents[1] if len(contents) > 1 else b""


def write_sasl_frame(code: int, field: bytes) -> bytes:
    body = bytes((0, 0x53, code, 0xC0, len(field) + 1, 1)) + field
    return struct.pack(">IBBH", FRAME_HEADER_BYTES + len(body), 2, 1, 0) + body


def write_outcome(code: int) -> bytes:
    return write_sasl_frame(OUTCOME, bytes((0x50, code)))
