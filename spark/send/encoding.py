"""Messages as bytes of AMQP 1.0, each encoded once: only the schedule differs between regions.

A message is encoded to the bytes that azure-servicebus would send, in a twentieth of its time. The
encodings are those of part 1 of the specification, the sections of a message those of part 3:
https://docs.oasis-open.org/amqp/core/v1.0/os/amqp-core-types-v1.0-os.html
A batch is one message in a format of Service Bus's own; each of its data sections is an encoded
message. Its envelope repeats id and session of the first one, as the SDKs have it.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import batched, chain
from typing import Any

from shared.adapters.service_bus import list_properties
from shared.domain.message import Message
from shared.domain.wire import CONTENT_TYPE

BATCH_FORMAT = 0x80013700
LIST, MAP = 0xC0, 0xC1
NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, DATA, VALUE = 0x72, 0x73, 0x74, 0x75, 0x77
SCHEDULED_AT = "x-opt-scheduled-enqueue-time"
# The fields of the properties section between message-id, content-type and group-id.
BEFORE_CONTENT_TYPE, BEFORE_GROUP, AFTER_GROUP = 5 * NULL, 3 * NULL, 2 * NULL


class NoAmqpValue(ValueError):
    """Bytes that are no AMQP value."""


@dataclass(frozen=True, slots=True)
class Described:
    """A value with its descriptor, which is a number for all that the specification defines."""

    descriptor: Any
    value: Any


class Symbol(str):
    """Text of the ASCII kind, which AMQP tells from other text."""

    __slots__ = ()


class Uint(int):
    """A whole number of 32 bits without a sign; other numbers are encoded with one."""

    __slots__ = ()


class Ulong(int):
    """A whole number of 64 bits without a sign."""

    __slots__ = ()


def encode_sections(message: Message) -> bytes:
    """A message as azure-servicebus encodes it, but for a schedule."""
    properties = list_properties(message)
    pairs = [
        encode_name(name) + (encode_text(it) if isinstance(it, str) else encode_int(it))
        for name, it in properties.items()
    ]
    named = encode_counted(MAP, 2 * len(pairs), b"".join(pairs))
    data = encode_described(DATA, encode_binary(message.body))
    return encode_header_fields(message) + encode_described(APPLICATION_PROPERTIES, named) + data


def encode_header_fields(message: Message, content_type: str | None = CONTENT_TYPE) -> bytes:
    kind = NULL if content_type is None else symbol_bytes(content_type)
    own, session = encode_text(message.id), encode_text(message.session)
    fields = own + BEFORE_CONTENT_TYPE + kind + BEFORE_GROUP + session + AFTER_GROUP
    return encode_described(PROPERTIES, encode_counted(LIST, 13, fields))


def encode_schedule(visible_at: datetime | None) -> bytes:
    """The section that goes before an encoded message which becomes visible later."""
    if visible_at is None:
        return b""
    milliseconds = int(visible_at.timestamp()) * 1000 + visible_at.microsecond // 1000
    entry = symbol_bytes(SCHEDULED_AT) + b"\x83" + struct.pack(">q", milliseconds)
    return encode_described(ANNOTATIONS, encode_counted(MAP, 2, entry))


def encode_whole_batch(first: Message, parts: Sequence[bytes]) -> bytes:
    """Encoded messages as one batch; `first` is the message that the first part encodes."""
    envelope = encode_header_fields(first, content_type=None)
    return envelope + b"".join([encode_described(DATA, encode_binary(part)) for part in parts])


def encode_described(code: int, content: bytes) -> bytes:
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
    content = name.encode("ascii")
    return b"\xa3" + bytes((len(content),)) + content


def encode_binary(content: bytes) -> bytes:
    return encode_sized(0xA0, content)


def encode_int(number: int) -> bytes:
    form, code = (">Bb", 0x54) if -128 <= number < 128 else (">Bi", 0x71)
    return struct.pack(form, code, number)


def uint_bytes(number: int) -> bytes:
    if not number:
        return b"\x43"
    return bytes((0x52, number)) if number < 256 else struct.pack(">BI", 0x70, number)


def encode_counted(code: int, count: int, content: bytes) -> bytes:
    """A list or a map of so many values, of which a map has two for each pair."""
    size = len(content)
    if size < 255:
        return bytes((code, size + 1, count)) + content
    return struct.pack(">BII", code + 16, size + 4, count) + content


def encode_value(value: Any) -> bytes:
    """Any value of a performative or of a request; the names of a dict are what they are given as.

    Raises TypeError for a type that none of them has.
    """
    try:
        encode = ENCODERS[type(value)]
    except KeyError:
        raise TypeError(f"{type(value).__name__} is not encoded") from None
    return encode(value)


ENCODERS: Mapping[type, Callable[[Any], bytes]] = {
    type(None): lambda _: NULL,
    bool: lambda value: TRUE if value else FALSE,
    Uint: uint_bytes,
    Ulong: lambda value: struct.pack(">BQ", 0x80, value),
    int: encode_int,
    Symbol: symbol_bytes,
    str: encode_text,
    bytes: encode_binary,
    Described: lambda value: encode_described(value.descriptor, encode_value(value.value)),
    dict: lambda value: encode_counted(
        MAP, 2 * len(value), b"".join(map(encode_value, chain.from_iterable(value.items())))
    ),
    list: lambda value: encode_counted(LIST, len(value), b"".join(map(encode_value, value))),
}


def decode_value(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The value that begins at a place, and where it ends; raises NoAmqpValue."""
    try:
        code = data[at]
        if code == 0:
            descriptor, at = decode_value(data, at + 1)
            value, at = decode_value(data, at)
            return Described(descriptor, value), at
        return decode_primitive(code, data, at + 1)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise NoAmqpValue(f"no AMQP value: {error}") from None


def read_signed(content: bytes) -> int:
    return int.from_bytes(content, signed=True)


# Numbers by their codes, with their widths.
UNSIGNED = {0x50: 1, 0x52: 1, 0x53: 1, 0x60: 2, 0x70: 4, 0x80: 8}
SIGNED = {0x51: 1, 0x54: 1, 0x55: 1, 0x61: 2, 0x71: 4, 0x81: 8, 0x83: 8}
# What has a width that its code tells: the width, and how the bytes are read.
FIXED: Mapping[int, tuple[int, Callable[[bytes], Any]]] = {
    0x40: (0, lambda _: None),
    0x41: (0, lambda _: True),
    0x42: (0, lambda _: False),
    0x43: (0, lambda _: 0),
    0x44: (0, lambda _: 0),
    0x45: (0, lambda _: []),
    0x56: (1, lambda content: content != b"\0"),
    **{code: (width, int.from_bytes) for code, width in UNSIGNED.items()},
    **{code: (width, read_signed) for code, width in SIGNED.items()},
    0x72: (4, lambda content: struct.unpack(">f", content)[0]),
    0x82: (8, lambda content: struct.unpack(">d", content)[0]),
    0x73: (4, lambda content: content.decode("utf-32-be")),
    0x74: (4, bytes),
    0x84: (8, bytes),
    0x94: (16, bytes),
    0x98: (16, bytes),
}
# What has its size before it, of one byte and of four.
SIZED: Mapping[int, Callable[[bytes], Any]] = {
    0xA0: bytes,
    0xB0: bytes,
    0xA1: bytes.decode,
    0xB1: bytes.decode,
    0xA3: lambda content: Symbol(content.decode("ascii")),
    0xB3: lambda content: Symbol(content.decode("ascii")),
}
LISTS, MAPS, ARRAYS = (0xC0, 0xD0), (0xC1, 0xD1), (0xE0, 0xF0)


def decode_primitive(code: int, data: bytes, at: int) -> tuple[Any, int]:
    """The value behind a constructor that describes nothing."""
    if code in FIXED:
        width, read = FIXED[code]
        return read(take_bytes(data, at, at + width)), at + width
    width = 4 if code & 0x10 else 1
    start = at + width
    end = start + int.from_bytes(data[at:start])
    content = take_bytes(data, start, end)
    if code in SIZED:
        return SIZED[code](content), end
    count = int.from_bytes(content[:width])
    if code in ARRAYS:
        return decode_array(content, width, count), end
    if code not in LISTS + MAPS:
        raise NoAmqpValue(f"no AMQP value begins with {code:#x}")
    values, place = [], width
    for _ in range(count):
        value, place = decode_value(content, place)
        values.append(value)
    return (values if code in LISTS else dict(batched(values, 2, strict=True))), end


def decode_array(data: bytes, at: int, count: int) -> list[Any]:
    """The elements of an array, which share one constructor."""
    code, at = data[at], at + 1
    values = []
    for _ in range(count):
        value, at = decode_primitive(code, data, at)
        values.append(value)
    return values


def take_bytes(data: bytes, start: int, end: int) -> bytes:
    if end > len(data):
        raise NoAmqpValue("it is cut off")
    return data[start:end]
