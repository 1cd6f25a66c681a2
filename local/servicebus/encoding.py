"""Single AMQP 1.0 values inside raw bytes (specification part 1, Types).

Decoding a whole message and encoding it again would not give the same bytes; so messages are
walked, not decoded: a value's size follows from the high half of its constructor (section 1.2).
"""

import struct
from collections.abc import Iterator

DESCRIBED = 0x00
NULL = 0x40
FIXED_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
SIZE_WIDTHS = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
UNSIGNED = {0x43, 0x44, 0x50, 0x52, 0x53, 0x60, 0x70, 0x80}
SIGNED = {0x51, 0x54, 0x55, 0x61, 0x71, 0x81, 0x83}
TEXT = {0xA1, 0xA3, 0xB1, 0xB3}
COMPOUND_WIDTHS = {0x45: 0, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}


class Undecodable(ValueError):
    """The bytes are not the AMQP 1.0 value they should be."""


def end_of(data: bytes, at: int) -> int:
    """Where the value that starts at `at` ends; raises Undecodable if it ends beyond the data."""
    try:
        if data[at] == DESCRIBED:
            return end_of(data, end_of(data, at + 1))
        start, size = content(data, at)
    except (IndexError, KeyError, RecursionError) as error:
        raise Undecodable(f"no AMQP value at byte {at}") from error
    if start + size > len(data):
        raise Undecodable(f"the AMQP value at byte {at} is cut off")
    return start + size


def content(data: bytes, at: int) -> tuple[int, int]:
    """Where the content of a primitive value starts, and its size in bytes."""
    kind = data[at] >> 4
    if kind in FIXED_WIDTHS:
        return at + 1, FIXED_WIDTHS[kind]
    width = SIZE_WIDTHS[kind]
    start = at + 1 + width
    return start, int.from_bytes(data[at + 1 : start])


def elements(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Start and end of each element of the list or map at `at`."""
    width = COMPOUND_WIDTHS.get(data[at])
    if width is None:
        raise Undecodable(f"no list or map at byte {at}")
    here = at + 1 + 2 * width
    for _ in range(int.from_bytes(data[here - width : here])):
        end = end_of(data, here)
        yield here, end
        here = end


def scalar(data: bytes, at: int) -> int | str | None:
    """The whole number or text at `at`; None for null and for every other type."""
    start, size = content(data, at)
    code = data[at]
    if code in UNSIGNED or code in SIGNED:
        return int.from_bytes(data[start : start + size], signed=code in SIGNED)
    if code in TEXT:
        return data[start : start + size].decode()
    return None


def symbol(text: str) -> bytes:
    """Encode a short symbol."""
    raw = text.encode("ascii")
    return bytes((0xA3, len(raw))) + raw


def string(text: str) -> bytes:
    """Encode a string."""
    raw = text.encode()
    return b"\xb1" + struct.pack(">I", len(raw)) + raw


def uint(number: int) -> bytes:
    """Encode an unsigned 32-bit number."""
    return b"\x70" + struct.pack(">I", number)


def long(number: int) -> bytes:
    """Encode a signed 64-bit number."""
    return b"\x81" + struct.pack(">q", number)


def timestamp(seconds: float) -> bytes:
    """Encode a time, given in seconds since 1970, as AMQP's milliseconds."""
    return b"\x83" + struct.pack(">q", int(seconds * 1000))


def int32(number: int) -> bytes:
    """Encode a signed 32-bit number."""
    return b"\x71" + struct.pack(">i", number)


def list_of(values: list[bytes]) -> bytes:
    """Encode a list of encoded values."""
    return compound(0xD0, len(values), b"".join(values))


def map_of(count: int, pairs: bytes) -> bytes:
    """Encode a map whose keys and values, `count` in all, are already encoded."""
    return compound(0xD1, count, pairs)


def compound(code: int, count: int, body: bytes) -> bytes:
    """Encode a list or map with 32-bit sizes; the size includes the count's four bytes."""
    return bytes((code,)) + struct.pack(">II", len(body) + 4, count) + body
