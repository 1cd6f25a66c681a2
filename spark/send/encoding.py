"""Messages as bytes of AMQP 1.0, each encoded once: only the schedule differs between regions.

A message is encoded to the bytes that azure-servicebus would send, in a twentieth of its time. The
encodings are those of part 1 of the specification, the sections of a message those of part 3:
https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html
"""

import struct
from datetime import datetime
from functools import cache

from shared.adapters.service_bus import list_properties
from shared.domain.message import Message
from shared.domain.wire import CONTENT_TYPE

LIST, MAP, NULL = 0xC0, 0xC1, b"\x40"
ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA = 0x72, 0x73, 0x74, 0x75
SCHEDULED_AT = "x-opt-scheduled-enqueue-time"
# The fields of the properties section between message-id, content-type and group-id.
BEFORE_CONTENT_TYPE, BEFORE_GROUP, AFTER_GROUP = 5 * NULL, 3 * NULL, 2 * NULL


def encode_sections(message: Message) -> bytes:
    """A message as azure-servicebus encodes it, but for a schedule."""
    own, session = encode_text(message.id), encode_text(message.session)
    kind = symbol_bytes(CONTENT_TYPE)
    fields = own + BEFORE_CONTENT_TYPE + kind + BEFORE_GROUP + session + AFTER_GROUP
    pairs = [
        encode_name(name) + (encode_text(it) if isinstance(it, str) else encode_int(it))
        for name, it in list_properties(message).items()
    ]
    return (
        encode_section(PROPERTIES, encode_counted(LIST, 13, fields))
        + encode_section(
            APPLICATION_PROPERTIES, encode_counted(MAP, 2 * len(pairs), b"".join(pairs))
        )
        + encode_section(DATA, encode_sized(0xA0, message.body))
    )


def encode_schedule(visible_at: datetime | None) -> bytes:
    """The section that goes before an encoded message which becomes visible later."""
    if visible_at is None:
        return b""
    milliseconds = int(visible_at.timestamp()) * 1000 + visible_at.microsecond // 1000
    entry = symbol_bytes(SCHEDULED_AT) + b"\x83" + struct.pack(">q", milliseconds)
    return encode_section(ANNOTATIONS, encode_counted(MAP, 2, entry))


def encode_section(code: int, content: bytes) -> bytes:
    return b"\x00\x53" + bytes((code,)) + content


def encode_sized(code: int, content: bytes) -> bytes:
    """Bytes or text with its size before it, of one byte or of four."""
    size = len(content)
    return (bytes((code, size)) if size < 256 else struct.pack(">BI", code + 16, size)) + content


def encode_text(text: str) -> bytes:
    return encode_sized(0xA1, text.encode())


@cache
def encode_name(name: str | bytes) -> bytes:
    """The name of a property. There are about a dozen."""
    return encode_text(name if isinstance(name, str) else name.decode())


@cache
def symbol_bytes(name: str) -> bytes:
    return encode_sized(0xA3, name.encode("ascii"))


def encode_int(number: int) -> bytes:
    form, code = (">Bb", 0x54) if -128 <= number < 128 else (">Bi", 0x71)
    return struct.pack(form, code, number)


def encode_counted(code: int, count: int, content: bytes) -> bytes:
    """A list or a map of so many values, of which a map has two for each pair."""
    size = len(content)
    if size < 255:
        return bytes((code, size + 1, count)) + content
    return struct.pack(">BII", code + 16, size + 4, count) + content
