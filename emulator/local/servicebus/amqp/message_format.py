"""Encoded messages: AMQP 1.0 values (specification part 1) in sections (part 3, section 3.2).

A broker must hand on the bare message unaltered (part 3, section 3.2), and decoding it and encoding
it again would not give the same bytes. So messages are walked, not decoded: what the broker needs
to know is read in place (session, time to live, schedule, message id), and a delivery is a new
header and new message annotations in front of the untouched rest.
"""

import struct
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple
from uuid import uuid4

from local.servicebus.message import (
    BrokeredMessage,
    MessageState,
    StoredMessage,
)

# Constructors (part 1, section 1.2): the high half of the code says how long the value is, or how
# wide the size is with which it begins. Both tables are by the whole code, for a quick loop.
DESCRIBED, NULL_CODE, SMALL_ULONG = 0x00, 0x40, 0x53
FIXED_WIDTHS = [{4: 0, 5: 1, 6: 2, 7: 4, 8: 8, 9: 16}.get(code >> 4) for code in range(256)]
SIZE_WIDTHS = [{10: 1, 11: 4, 12: 1, 13: 4, 14: 1, 15: 4}.get(code >> 4) for code in range(256)]
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
SHORT_DESCRIPTOR = bytes((DESCRIBED, SMALL_ULONG))
read_uint = struct.Struct(">I").unpack_from

# Descriptors of the sections, in the order in which they must come; but azure-servicebus writes
# the delivery annotations behind all others, and Azure takes them there.
HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
REPEATABLE = (DATA, SEQUENCE)
TIME_TO_LIVE_INDEX = 2  # in the header
MESSAGE_ID_INDEX, GROUP_ID_INDEX = 0, 10  # in the properties

SCHEDULED_ENQUEUE_TIME = b"x-opt-scheduled-enqueue-time"
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
    """Return where the value at `at` ends; raises Undecodable if it ends beyond the data."""
    return measure_values(data, at, 1)[1]


def measure_values(data: bytes, at: int, count: int) -> list[int]:
    """Return `at`, and where each of `count` values ends that follow each other from there on.

    Raises Undecodable if one is no AMQP value, or they end beyond the data. A broker does this to
    every part of every message, so it is one loop that measures a value without a call.
    """
    offsets = [at]
    try:
        for _ in range(count):
            code = data[at]
            if (size := FIXED_WIDTHS[code]) is not None:
                at += 1 + size
            elif (width := SIZE_WIDTHS[code]) == 1:
                at += 2 + data[at + 1]
            elif width is not None:
                at += 5 + read_uint(data, at + 1)[0]
            elif code == DESCRIBED:  # a descriptor, then the value it describes
                at = measure_values(data, at + 1, 2)[2]
            else:
                raise Undecodable(f"no AMQP value at byte {at}")
            offsets.append(at)
    except (IndexError, struct.error, RecursionError) as error:
        raise Undecodable(f"no AMQP value at byte {at}") from error
    if at > len(data):
        raise Undecodable(f"an AMQP value is cut off: it ends at byte {at} of {len(data)}")
    return offsets


def content_of(data: bytes, at: int) -> tuple[int, int]:
    """Return where the content of a primitive value starts, and its size in bytes."""
    code = data[at]
    if (size := FIXED_WIDTHS[code]) is not None:
        return at + 1, size
    match SIZE_WIDTHS[code]:
        case 1:
            return at + 2, data[at + 1]
        case 4:
            return at + 5, read_uint(data, at + 1)[0]
        case _:
            raise Undecodable(f"no primitive value at byte {at}")


def offsets_of(data: bytes, at: int) -> list[int]:
    """Return where each element of the list or map at `at` starts, and at last where the last ends.

    Raises Undecodable unless they fill the list or map.
    """
    width = COMPOUND_WIDTHS.get(data[at])
    if width is None:
        raise Undecodable(f"no list or map at byte {at}")
    here = at + 1 + 2 * width  # behind the size and the count
    offsets = measure_values(data, here, int.from_bytes(data[here - width : here]))
    start, size = content_of(data, at)
    if offsets[-1] != start + size:
        raise Undecodable(f"the list or map at byte {at} is not as large as it says")
    return offsets


def elements_of(data: bytes, at: int) -> list[tuple[int, int]]:
    """Start and end of each element of the list or map at `at`."""
    return list(pairwise(offsets_of(data, at)))


def text_at(data: bytes, at: int) -> bytes | None:
    """The text at `at` as it is encoded, in UTF-8 if that is right; None for all other types."""
    if data[at] not in TEXT:
        return None
    start, size = content_of(data, at)
    return data[start : start + size]


def scalar_at(data: bytes, at: int) -> int | str | None:
    """The whole number or text at `at`; None for null and for every other type."""
    if (text := text_at(data, at)) is not None:
        return text.decode()
    code = data[at]
    if code in UNSIGNED or code in SIGNED:
        start, size = content_of(data, at)
        return int.from_bytes(data[start : start + size], signed=code in SIGNED)
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
# Under which a topic, or what forwards, hands the first number on; no client is told this name.
FIRST_SEQUENCE_NUMBER = encode_symbol("x-local-topic-sequence-number")
BROKER_ANNOTATIONS = {
    symbol[2:]
    for symbol in (
        SEQUENCE_NUMBER,
        ENQUEUE_SEQUENCE_NUMBER,
        ENQUEUED_TIME,
        LOCKED_UNTIL,
        MESSAGE_STATE,
        LOCK_TOKEN,
        FIRST_SEQUENCE_NUMBER,
    )
}


def read_sections(data: bytes) -> list[MessageSection]:
    """A message's sections; raises Undecodable if it is not one, or they are out of order."""
    sections: list[MessageSection] = []
    at, last, size = 0, 0, len(data)
    while at < size:
        code: int | str | None
        if data.startswith(SHORT_DESCRIPTOR, at) and at + 2 < size:  # as every client writes it
            code, value = data[at + 2], at + 3
        else:
            value = end_of(data, at + 1)
            code = scalar_at(data, at + 1)
        end = end_of(data, value)
        if data[at] != DESCRIBED or not isinstance(code, int) or not HEADER <= code <= FOOTER:
            raise Undecodable(f"no message section at byte {at}")
        if code != DELIVERY_ANNOTATIONS:
            if code < last or (code == last and code not in REPEATABLE):
                raise Undecodable(f"section {code:#x} is out of place")
            last = code
        sections.append(MessageSection(code, at, value, end))
        at = end
    return sections


def read_transfer(data: bytes, *, is_batch: bool) -> list[BrokeredMessage]:
    """The messages of one transfer: one, or all of a batch, whose data sections are messages."""
    if not data:
        raise Undecodable("an empty transfer is no message")
    if not is_batch:
        return [identify(read_message(data))]
    parts = [content_of(data, one.value) for one in read_sections(data) if one.code == DATA]
    return [identify(read_message(data[start : start + size])) for start, size in parts]


def read_message(data: bytes) -> BrokeredMessage:
    """Read what the broker needs to know of a message; raises Undecodable, or Unserializable."""
    session_id: str | None = None
    time_to_live: float | None = None
    scheduled_for: float | None = None
    message_id: str | None = None
    for section in read_sections(data):
        if section.code == HEADER:
            at = field_at(data, offsets_of(data, section.value), TIME_TO_LIVE_INDEX)
            milliseconds = None if at is None else scalar_at(data, at)
            time_to_live = milliseconds / 1000 if isinstance(milliseconds, int) else None
        elif section.code == MESSAGE_ANNOTATIONS:
            scheduled_for = read_scheduled_time(data, section)
        elif section.code == PROPERTIES:
            fields = offsets_of(data, section.value)
            at = field_at(data, fields, GROUP_ID_INDEX)
            if at is not None:
                if data[at] not in STRINGS:
                    raise Undecodable(f"the session id is no string, but of type {data[at]:#x}")
                session_id = str(scalar_at(data, at))
            message_id = read_property(data, fields, MESSAGE_ID_INDEX)
        elif section.code == APPLICATION_PROPERTIES:
            check_application_properties(data, section)
        elif section.code == DELIVERY_ANNOTATIONS:
            entries_of(data, section)  # raises for what could not be handed on
    return BrokeredMessage(data, session_id, time_to_live, scheduled_for, message_id)


def check_application_properties(data: bytes, section: MessageSection) -> None:
    """Require values of simple types (3.2.5); described ones stand for types of .NET."""
    for key, value, _ in entries_of(data, section):
        if (kind := COMPOUND_NAMES.get(data[value])) is not None:
            name = scalar_at(data, key)
            reason = f"Serialization operation failed due to unsupported type {kind}"
            raise Unserializable(f"{reason}, of the application property {name!r}")


def field_at(data: bytes, fields: list[int], index: int) -> int | None:
    """Return where a field of a list starts, given its offsets; None if it is left out or null.

    Trailing fields that are null may be missing altogether (part 1, section 1.4).
    """
    if index >= len(fields) - 1 or data[fields[index]] == NULL_CODE:
        return None
    return fields[index]


def read_property(data: bytes, fields: list[int], index: int) -> str | None:
    """A field in a form to compare by: ids may be text, numbers, UUIDs and bytes (3.2.4)."""
    at = field_at(data, fields, index)
    if at is None:
        return None
    value = scalar_at(data, at)
    return data[at : fields[index + 1]].hex() if value is None else str(value)


def read_scheduled_time(data: bytes, annotations: MessageSection) -> float | None:
    """Return when the sender wants the message enqueued, in seconds since 1970."""
    for key, value, _ in entries_of(data, annotations):
        if text_at(data, key) == SCHEDULED_ENQUEUE_TIME:
            milliseconds = scalar_at(data, value)
            return milliseconds / 1000 if isinstance(milliseconds, int) else None
    return None


def entries_of(data: bytes, section: MessageSection) -> Iterator[tuple[int, int, int]]:
    """Return where each key of a map section starts, where its value starts, and where it ends."""
    offsets = offsets_of(data, section.value)
    if len(offsets) % 2 == 0:
        raise Undecodable(f"a map with an odd number of elements at byte {section.value}")
    return zip(offsets[:-1:2], offsets[1::2], offsets[2::2], strict=True)


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
    """Write the sender's delivery annotations, which Azure hands on, and the token of the lock.

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
    if (number := read_first_number(data, sent)) is not None:
        entries += (ENQUEUE_SEQUENCE_NUMBER, number)
    entries += (ENQUEUED_TIME, encode_timestamp(stored.enqueued_at))
    if STATE_NUMBERS[state]:
        entries += (MESSAGE_STATE, b"\x71" + struct.pack(">i", STATE_NUMBERS[state]))
    if stored.lock is not None:
        entries += (LOCKED_UNTIL, encode_timestamp(stored.lock.until))
    return encode_section(MESSAGE_ANNOTATIONS, MAP32, entries)


def note_first_number(data: bytes, number: int) -> bytes:
    """The message with the number that it had where it was sent to, which deliveries tell."""
    found = {section.code: section for section in read_sections(data)}
    entries = copy_entries(data, found.get(MESSAGE_ANNOTATIONS), {FIRST_SEQUENCE_NUMBER[2:]})
    entries += (FIRST_SEQUENCE_NUMBER, encode_long(number))
    noted = encode_section(MESSAGE_ANNOTATIONS, MAP32, entries)
    return replace_section(data, MESSAGE_ANNOTATIONS, noted)


def read_first_number(data: bytes, annotations: MessageSection | None) -> bytes | None:
    """The encoded number that was noted; None for what was sent to this queue, as in Azure."""
    for key, value, end in entries_of(data, annotations) if annotations is not None else ():
        if text_at(data, key) == FIRST_SEQUENCE_NUMBER[2:]:
            return data[value:end]
    return None


def copy_entries(
    data: bytes, sent: MessageSection | None, dropped: Collection[bytes]
) -> list[bytes]:
    """Keys and values of a section that is a map, without those of the names in `dropped`."""
    entries: list[bytes] = []
    for key, value, end in entries_of(data, sent) if sent is not None else ():
        if text_at(data, key) not in dropped:
            entries += (data[key:value], data[value:end])
    return entries


def identify(message: BrokeredMessage) -> BrokeredMessage:
    """Return the message with its id or a new one: some clients cannot settle it without one."""
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
            entries = copy_entries(data, section, {key.encode() for key in changes})
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
