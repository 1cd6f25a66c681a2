"""Encoded messages: AMQP 1.0 values (specification part 1) in sections (part 3, section 3.2).

A broker must hand on the bare message unaltered (part 3, section 3.2), and decoding it and encoding
it again would not give the same bytes. So messages are walked, not decoded: what the broker needs
to know is read in place (session, time to live, schedule, message id), and a delivery is a new
header and new message annotations in front of the untouched rest.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple
from uuid import uuid4

from local.servicebus.entities.message import (
    BrokeredMessage,
    MessageState,
    StoredMessage,
)

# Constructors (part 1, section 1.2): the high half of the code says how long the value is.
DESCRIBED, NULL_CODE, SMALL_ULONG = 0x00, 0x40, 0x53
FIXED_WIDTHS = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
SIZE_WIDTHS = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}
COMPOUND_WIDTHS = {0x45: 0, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
UNSIGNED = {0x43, 0x44, 0x50, 0x52, 0x53, 0x60, 0x70, 0x80}
SIGNED = {0x51, 0x54, 0x55, 0x61, 0x71, 0x81, 0x83}
STRINGS = {0xA1, 0xB1}
TEXT = STRINGS | {0xA3, 0xB3}
COMPOUND_NAMES = {
    **dict.fromkeys((0x45, 0xC0, 0xD0), "list"),
    **dict.fromkeys((0xC1, 0xD1), "map"),
    **dict.fromkeys((0xE0, 0xF0), "array"),
}
NULL = bytes((NULL_CODE,))

# Descriptors of the sections, in the order in which they must come; but azure-servicebus writes
# the delivery annotations behind all others, and Azure takes them there.
HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
REPEATABLE = (DATA, SEQUENCE)
TIME_TO_LIVE_INDEX = 2  # in the header
MESSAGE_ID_INDEX, GROUP_ID_INDEX = 0, 10  # in the properties

SCHEDULED_ENQUEUE_TIME = "x-opt-scheduled-enqueue-time"
# Service Bus's numbers of states: a locked message is still active.
STATE_NUMBERS = {
    MessageState.ACTIVE: 0,
    MessageState.LOCKED: 0,
    MessageState.DEFERRED: 1,
    MessageState.SCHEDULED: 2,
}


class Undecodable(ValueError):
    """The bytes are not the AMQP 1.0 value they should be."""


class Unserializable(ValueError):
    """A message of a form that Service Bus cannot keep."""


class MessageSection(NamedTuple):
    """One section: its descriptor's code, and where it and its value lie."""

    code: int
    start: int
    value: int
    end: int


def end_of(data: bytes, at: int) -> int:
    """Where the value that starts at `at` ends; raises Undecodable if it ends beyond the data."""
    try:
        if data[at] == DESCRIBED:  # a descriptor, then the value it describes
            return end_of(data, end_of(data, at + 1))
        start, size = content_of(data, at)
    except (IndexError, KeyError, RecursionError) as error:
        raise Undecodable(f"no AMQP value at byte {at}") from error
    if start + size > len(data):
        raise Undecodable(f"the AMQP value at byte {at} is cut off")
    return start + size


def content_of(data: bytes, at: int) -> tuple[int, int]:
    """Where the content of a primitive value starts, and its size in bytes."""
    category = data[at] >> 4
    if category in FIXED_WIDTHS:
        return at + 1, FIXED_WIDTHS[category]
    start = at + 1 + SIZE_WIDTHS[category]
    return start, int.from_bytes(data[at + 1 : start])


def elements_of(data: bytes, at: int) -> Iterator[tuple[int, int]]:
    """Start and end of each element of the list or map at `at`."""
    width = COMPOUND_WIDTHS.get(data[at])
    if width is None:
        raise Undecodable(f"no list or map at byte {at}")
    here = at + 1 + 2 * width  # behind the size and the count
    for _ in range(int.from_bytes(data[here - width : here])):
        end = end_of(data, here)
        yield here, end
        here = end


def scalar_at(data: bytes, at: int) -> int | str | None:
    """The whole number or text at `at`; None for null and for every other type."""
    start, size = content_of(data, at)
    code = data[at]
    if code in UNSIGNED or code in SIGNED:
        return int.from_bytes(data[start : start + size], signed=code in SIGNED)
    if code in TEXT:
        return data[start : start + size].decode()
    return None


def encode_symbol(text: str) -> bytes:
    return bytes((0xA3, len(text))) + text.encode("ascii")


def encode_string(text: str) -> bytes:
    raw = text.encode()
    return b"\xb1" + struct.pack(">I", len(raw)) + raw


def encode_long(number: int) -> bytes:
    return b"\x81" + struct.pack(">q", number)


def encode_timestamp(seconds: float) -> bytes:
    """A time in seconds since 1970, as AMQP's milliseconds."""
    return b"\x83" + struct.pack(">q", int(seconds * 1000))


def encode_section(code: int, constructor: int, values: list[bytes]) -> bytes:
    """A section that is a list or map of encoded values; its size includes the count's 4 bytes."""
    body = b"".join(values)
    size_and_count = struct.pack(">II", len(body) + 4, len(values))
    return bytes((DESCRIBED, SMALL_ULONG, code, constructor)) + size_and_count + body


LIST32, MAP32 = 0xD0, 0xD1
# The broker's own annotations; a producer's annotations of these names are dropped.
SEQUENCE_NUMBER = encode_symbol("x-opt-sequence-number")
ENQUEUE_SEQUENCE_NUMBER = encode_symbol("x-opt-enqueue-sequence-number")
ENQUEUED_TIME = encode_symbol("x-opt-enqueued-time")
LOCKED_UNTIL = encode_symbol("x-opt-locked-until")
MESSAGE_STATE = encode_symbol("x-opt-message-state")
LOCK_TOKEN = encode_symbol("x-opt-lock-token")
BROKER_ANNOTATIONS = {
    symbol[2:].decode()
    for symbol in (
        SEQUENCE_NUMBER,
        ENQUEUE_SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        MESSAGE_STATE,
        LOCK_TOKEN,
    )
}


def read_sections(data: bytes) -> Iterator[MessageSection]:
    """Walk over a message's sections; raises Undecodable if it is not one, or out of order."""
    at, last = 0, 0
    while at < len(data):
        code: int | str | None
        if data[at + 1 : at + 2] == b"\x53" and len(data) > at + 2:  # as every client writes it
            code, value = data[at + 2], at + 3
        else:
            value = end_of(data, at + 1)
            code = scalar_at(data, at + 1)
        if data[at] != DESCRIBED or not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise Undecodable(f"no message section at byte {at}")
        end = end_of(data, value)
        if code != DELIVERY_ANNOTATIONS:
            if code < last or (code == last and code not in REPEATABLE):
                raise Undecodable(f"section {code:#x} is out of place")
            last = code
        yield MessageSection(code, at, value, end)
        at = end


def read_transfer(data: bytes, *, is_batch: bool) -> list[BrokeredMessage]:
    """The messages of one transfer: one, or all of a batch, whose data sections are messages."""
    if not data:
        raise Undecodable("an empty transfer is no message")
    if not is_batch:
        return [identify(read_message(data))]
    parts = [content_of(data, one.value) for one in read_sections(data) if one.code == DATA]
    return [identify(read_message(data[start : start + size])) for start, size in parts]


def read_message(data: bytes) -> BrokeredMessage:
    """What the broker needs to know of a message; raises Undecodable, or Unserializable."""
    session_id: str | None = None
    time_to_live: float | None = None
    scheduled_for: float | None = None
    message_id: str | None = None
    for section in read_sections(data):
        if section.code == HEADER:
            at = field_at(data, section, TIME_TO_LIVE_INDEX)
            milliseconds = None if at is None else scalar_at(data, at)
            time_to_live = milliseconds / 1000 if isinstance(milliseconds, int) else None
        elif section.code == MESSAGE_ANNOTATIONS:
            scheduled_for = read_scheduled_time(data, section)
        elif section.code == PROPERTIES:
            at = field_at(data, section, GROUP_ID_INDEX)
            if at is not None:
                if data[at] not in STRINGS:
                    raise Undecodable(f"the session id is no string, but of type {data[at]:#x}")
                session_id = str(scalar_at(data, at))
            message_id = read_property(data, section, MESSAGE_ID_INDEX)
        elif section.code == APPLICATION_PROPERTIES:
            check_application_properties(data, section)
    return BrokeredMessage(data, session_id, time_to_live, scheduled_for, message_id)


def check_application_properties(data: bytes, section: MessageSection) -> None:
    """Values are of simple types (3.2.5); described ones stand for types of .NET."""
    for (key, _), (value, _) in entries_of(data, section):
        if (kind := COMPOUND_NAMES.get(data[value])) is not None:
            name = scalar_at(data, key)
            reason = f"Serialization operation failed due to unsupported type {kind}"
            raise Unserializable(f"{reason}, of the application property {name!r}")


def field_at(data: bytes, section: MessageSection, index: int) -> int | None:
    """Where a field of a section that is a list starts; None if it is left out or null.

    Trailing fields that are null may be missing altogether (part 1, section 1.4).
    """
    start, _ = next(islice(elements_of(data, section.value), index, None), (None, None))
    return None if start is None or data[start] == NULL_CODE else start


def read_property(data: bytes, section: MessageSection, index: int) -> str | None:
    """A field in a form to compare by: ids may be text, numbers, UUIDs and bytes (3.2.4)."""
    at = field_at(data, section, index)
    if at is None:
        return None
    value = scalar_at(data, at)
    return data[at : end_of(data, at)].hex() if value is None else str(value)


def read_scheduled_time(data: bytes, annotations: MessageSection) -> float | None:
    """When the sender wants the message enqueued, in seconds since 1970."""
    for (key, _), (value, _) in entries_of(data, annotations):
        if scalar_at(data, key) == SCHEDULED_ENQUEUE_TIME:
            milliseconds = scalar_at(data, value)
            return milliseconds / 1000 if isinstance(milliseconds, int) else None
    return None


def entries_of(
    data: bytes, section: MessageSection
) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Start and end of each key, and of its value, of a section that is a map."""
    extents = elements_of(data, section.value)
    return zip(extents, extents, strict=True)


def write_delivery(stored: StoredMessage) -> bytes:
    data = stored.message.encoded
    if stored.dead_letter is not None:
        texts = {
            "DeadLetterReason": stored.dead_letter.reason,
            "DeadLetterErrorDescription": stored.dead_letter.description,
        }
        given = {key: encode_string(text) for key, text in texts.items() if text is not None}
        data = modify_properties(data, given)
    sections = list(read_sections(data))
    found = {section.code: section for section in sections}
    header = write_header(data, found.get(HEADER), stored)
    for_delivery = write_delivery_annotations(data, found.get(DELIVERY_ANNOTATIONS), stored)
    annotations = write_annotations(data, found.get(MESSAGE_ANNOTATIONS), stored)
    # Everything from the properties on as it was sent.
    bare = (data[section.start : section.end] for section in sections if section.code >= PROPERTIES)
    return b"".join((header, for_delivery, annotations, *bare))


def write_header(data: bytes, sent: MessageSection | None, stored: StoredMessage) -> bytes:
    """The sender's durable, priority, ttl and first-acquirer, with the broker's delivery-count."""
    extents = () if sent is None else elements_of(data, sent.value)
    fields = [data[start:end] for start, end in extents]
    delivery_count = b"\x70" + struct.pack(">I", stored.delivery_count)
    return encode_section(HEADER, LIST32, [*[*fields, *[NULL] * 4][:4], delivery_count])


def write_delivery_annotations(
    data: bytes, sent: MessageSection | None, stored: StoredMessage
) -> bytes:
    """The sender's, which Azure hands on, and the token of the lock under which this is.

    Without any the section is there all the same, as a test of Microsoft's expects.
    """
    entries = copy_entries(data, sent, BROKER_ANNOTATIONS)
    if stored.lock is not None:
        entries += (LOCK_TOKEN, b"\x98" + stored.lock.token.bytes)
    return encode_section(DELIVERY_ANNOTATIONS, MAP32, entries)


def write_annotations(data: bytes, sent: MessageSection | None, stored: StoredMessage) -> bytes:
    entries = copy_entries(data, sent, BROKER_ANNOTATIONS)
    # Once deferred, a message stays so while it is received and locked by its number.
    state = MessageState.DEFERRED if stored.was_deferred else stored.state
    entries += (SEQUENCE_NUMBER, encode_long(stored.sequence_number))
    entries += (ENQUEUED_TIME, encode_timestamp(stored.enqueued_at))
    if STATE_NUMBERS[state]:
        entries += (MESSAGE_STATE, b"\x71" + struct.pack(">i", STATE_NUMBERS[state]))
    if stored.lock is not None:
        entries += (LOCKED_UNTIL, encode_timestamp(stored.lock.until))
    return encode_section(MESSAGE_ANNOTATIONS, MAP32, entries)


def copy_entries(data: bytes, sent: MessageSection | None, dropped: Collection[str]) -> list[bytes]:
    """Keys and values of a section that is a map, without those of the names in `dropped`."""
    entries: list[bytes] = []
    for key, value in entries_of(data, sent) if sent is not None else ():
        if scalar_at(data, key[0]) not in dropped:
            entries += (data[key[0] : key[1]], data[value[0] : value[1]])
    return entries


def identify(message: BrokeredMessage) -> BrokeredMessage:
    """As it arrived, or with an id of its own: some clients cannot settle a message without one."""
    if message.message_id is not None:
        return message
    message_id = uuid4().hex
    fields: list[bytes] = []
    for section in read_sections(message.encoded):
        if section.code == PROPERTIES:
            extents = elements_of(message.encoded, section.value)
            fields = [message.encoded[start:end] for start, end in extents]
    named = encode_section(PROPERTIES, LIST32, [encode_string(message_id), *fields[1:]])
    encoded = replace_section(message.encoded, PROPERTIES, named)
    return replace(message, encoded=encoded, message_id=message_id)


def modify_properties(data: bytes, changes: Mapping[str, bytes]) -> bytes:
    """The message with these application properties, each an encoded value, in place of its own."""
    entries: list[bytes] = []
    for section in read_sections(data):
        if section.code == APPLICATION_PROPERTIES:
            entries = copy_entries(data, section, changes.keys())
    for key, value in changes.items():
        entries += (encode_string(key), value)
    changed = encode_section(APPLICATION_PROPERTIES, MAP32, entries)
    return replace_section(data, APPLICATION_PROPERTIES, changed)


def replace_section(data: bytes, code: int, section: bytes) -> bytes:
    """The message with another section in the place of its own, if it has one."""
    others = [one for one in read_sections(data) if one.code != code]
    before = (data[one.start : one.end] for one in others if one.code < code)
    after = (data[one.start : one.end] for one in others if one.code > code)
    return b"".join((*before, section, *after))
