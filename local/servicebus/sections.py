"""The sections of an encoded message (AMQP 1.0 part 3, Messaging, section 3.2).

What a producer sent is read here (session, time to live, schedule), and what a consumer gets is
written: a new header and new message annotations around the untouched rest.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple
from uuid import UUID

from local.servicebus import encoding
from local.servicebus.encoding import Undecodable
from local.servicebus.message import DeadLetter, Message, State, StoredMessage

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS = 0x70, 0x71, 0x72
PROPERTIES, APPLICATION_PROPERTIES = 0x73, 0x74
DATA, SEQUENCE, VALUE, FOOTER = 0x75, 0x76, 0x77, 0x78
REPEATABLE = (DATA, SEQUENCE)

TIME_TO_LIVE_INDEX = 2  # of header
MESSAGE_ID_INDEX, GROUP_ID_INDEX = 0, 10  # of properties
DURABLE, PRIORITY, FIRST_ACQUIRER = 0, 1, 3  # of header

SCHEDULED_ENQUEUE_TIME = "x-opt-scheduled-enqueue-time"
# Set by the service on delivery; a producer's own are dropped.
SEQUENCE_NUMBER = encoding.symbol("x-opt-sequence-number")
ENQUEUE_SEQUENCE_NUMBER = encoding.symbol("x-opt-enqueue-sequence-number")
ENQUEUED_TIME = encoding.symbol("x-opt-enqueued-time")
LOCKED_UNTIL = encoding.symbol("x-opt-locked-until")
MESSAGE_STATE = encoding.symbol("x-opt-message-state")
SERVICE_ANNOTATIONS = {
    SEQUENCE_NUMBER,
    ENQUEUE_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    LOCKED_UNTIL,
    MESSAGE_STATE,
}
STATE_NUMBERS = {State.ACTIVE: 0, State.LOCKED: 0, State.DEFERRED: 1, State.SCHEDULED: 2}
NULL = bytes((encoding.NULL,))
SMALL_ULONG = b"\x53"


class Section(NamedTuple):
    """One section: its descriptor's code, and where it and its value lie."""

    code: int
    start: int
    value: int
    end: int


def sections(data: bytes) -> Iterator[Section]:
    """Walk over a message's sections; raises Undecodable if it is not one, or out of order."""
    at, last = 0, 0
    while at < len(data):
        section = section_at(data, at)
        if section.code < last or (section.code == last and section.code not in REPEATABLE):
            raise Undecodable(f"section {section.code:#x} is out of place")
        at, last = section.end, section.code
        yield section


def section_at(data: bytes, at: int) -> Section:
    """The section that starts at `at`."""
    code, value = descriptor_at(data, at)
    if data[at] != encoding.DESCRIBED or not isinstance(code, int) or not HEADER <= code <= FOOTER:
        raise Undecodable(f"no message section at byte {at}")
    return Section(code, at, value, encoding.end_of(data, value))


def descriptor_at(data: bytes, at: int) -> tuple[int | str | None, int]:
    """What the section that starts at `at` is, and where its value begins."""
    if data[at + 1 : at + 2] == SMALL_ULONG and len(data) > at + 2:  # as every client writes it
        return data[at + 2], at + 3
    value = encoding.end_of(data, at + 1)
    return encoding.scalar(data, at + 1), value


def read_transfer(data: bytes) -> list[Message]:
    """The messages of one transfer: one, or all of a batched send.

    A batch is a message whose every data section is itself a message. Its message-format says so
    too, but Proton's Python binding does not tell it.
    """
    found = list(sections(data))
    if not found:
        raise Undecodable("an empty transfer is no message")
    body = [section for section in found if section.code >= DATA]
    if body and all(section.code == DATA for section in body):
        contents = [binary(data, section.value) for section in body]
        parts = [sections_of_message(content) for content in contents]
        if all(parts):
            return [read_parts(*one) for one in zip(contents, parts, strict=True)]
    return [read_parts(data, found)]


def binary(data: bytes, at: int) -> bytes:
    """The content of the binary at `at`."""
    start, size = encoding.content(data, at)
    return data[start : start + size]


def sections_of_message(data: bytes) -> list[Section]:
    """The sections of a message; none unless bytes are one from end to end."""
    if not data.startswith(b"\x00"):
        return []
    try:
        return list(sections(data))
    except Undecodable:
        return []


def read_message(data: bytes) -> Message:
    """What the service needs to know of a message."""
    return read_parts(data, sections(data))


def read_parts(data: bytes, parts: Iterable[Section]) -> Message:
    """What the service needs to know of a message whose sections are known."""
    session_id: str | None = None
    time_to_live: float | None = None
    scheduled_for: float | None = None
    message_id: str | None = None
    for section in parts:
        if section.code == HEADER:
            milliseconds = element(data, section, TIME_TO_LIVE_INDEX)
            time_to_live = milliseconds / 1000 if isinstance(milliseconds, int) else None
        elif section.code == MESSAGE_ANNOTATIONS:
            scheduled_for = scheduled_time(data, section)
        elif section.code == PROPERTIES:
            group_id = element(data, section, GROUP_ID_INDEX)
            session_id = group_id if isinstance(group_id, str) else None
            message_id = identity(data, section, MESSAGE_ID_INDEX)
    return Message(data, session_id, time_to_live, scheduled_for, message_id)


def identity(data: bytes, section: Section, index: int) -> str | None:
    """One field of a section that is a list, in a form to compare by; None if it is left out.

    AMQP allows ids to be text, numbers, UUIDs and bytes.
    """
    extent = next(islice(encoding.elements(data, section.value), index, None), None)
    if extent is None or data[extent[0]] == encoding.NULL:
        return None
    value = encoding.scalar(data, extent[0])
    return data[slice(*extent)].hex() if value is None else str(value)


def element(data: bytes, section: Section, index: int) -> int | str | None:
    """One field of a section that is a list; None if it is left out."""
    for position, (start, _) in enumerate(encoding.elements(data, section.value)):
        if position == index:
            return encoding.scalar(data, start)
    return None


def scheduled_time(data: bytes, section: Section) -> float | None:
    """When the sender wants the message enqueued, in seconds since 1970."""
    for key, value in pairs(data, section):
        if encoding.scalar(data, key[0]) == SCHEDULED_ENQUEUE_TIME:
            milliseconds = encoding.scalar(data, value[0])
            return milliseconds / 1000 if isinstance(milliseconds, int) else None
    return None


def pairs(data: bytes, section: Section) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Extents of the keys and values of a section that is a map."""
    entries = encoding.elements(data, section.value)
    return zip(entries, entries, strict=True)


def write_delivery(stored: StoredMessage) -> bytes:
    """Encode a message as a consumer gets it."""
    data = stored.message.encoded
    parts: dict[int, Section] = {}
    for section in sections(data):
        if section.code >= DATA:
            break
        parts[section.code] = section
    written = [write_header(data, parts.get(HEADER), stored)]
    written.append(write_annotations(data, parts.get(MESSAGE_ANNOTATIONS), stored))
    written.append(write_rest(data, parts, stored.dead_letter))
    return b"".join(written)


def write_header(data: bytes, sent: Section | None, stored: StoredMessage) -> bytes:
    """The sender's header with the service's delivery count."""
    fields = [NULL, NULL, NULL, NULL]
    if sent is not None:
        given = [data[start:end] for start, end in encoding.elements(data, sent.value)]
        fields = [*given, NULL, NULL, NULL, NULL][:4]
    fields.append(encoding.uint(stored.delivery_count))
    return described(HEADER, encoding.list_of(fields))


def write_annotations(data: bytes, sent: Section | None, stored: StoredMessage) -> bytes:
    """The sender's annotations and the service's own."""
    entries: list[bytes] = []
    for key, value in pairs(data, sent) if sent is not None else ():
        name = data[key[0] : key[1]]
        if name not in SERVICE_ANNOTATIONS:
            entries += (name, data[value[0] : value[1]])
    entries += (SEQUENCE_NUMBER, encoding.long(stored.sequence_number))
    entries += (ENQUEUE_SEQUENCE_NUMBER, encoding.long(stored.sequence_number))
    entries += (ENQUEUED_TIME, encoding.timestamp(stored.enqueued_at))
    entries += (MESSAGE_STATE, encoding.int32(STATE_NUMBERS[stored.state]))
    if stored.lock is not None:
        entries += (LOCKED_UNTIL, encoding.timestamp(stored.lock.until))
    return described(MESSAGE_ANNOTATIONS, encoding.map_of(len(entries), b"".join(entries)))


def write_rest(data: bytes, parts: dict[int, Section], dead_letter: DeadLetter | None) -> bytes:
    """Everything from the properties on, as sent; a dead letter says why in its own properties."""
    bare = next((data[part.start :] for code, part in parts.items() if code >= PROPERTIES), None)
    front_end = max((part.end for part in parts.values()), default=0)
    if dead_letter is None:
        return data[front_end:] if bare is None else bare
    properties = parts.get(PROPERTIES)
    before = data[properties.start : properties.end] if properties is not None else b""
    reasons = write_reasons(data, parts.get(APPLICATION_PROPERTIES), dead_letter)
    return before + reasons + data[front_end:]


def write_reasons(data: bytes, sent: Section | None, dead_letter: DeadLetter) -> bytes:
    """The sender's application properties, and why the message is a dead letter."""
    reasons = {
        encoding.string("DeadLetterReason"): dead_letter.reason,
        encoding.string("DeadLetterErrorDescription"): dead_letter.description,
    }
    entries = [data[at:end] for at, end in encoding.elements(data, sent.value)] if sent else []
    for key, text in reasons.items():
        if text is not None:
            entries += (key, encoding.string(text))
    return described(APPLICATION_PROPERTIES, encoding.map_of(len(entries), b"".join(entries)))


def described(code: int, value: bytes) -> bytes:
    """A section: its descriptor, and its value."""
    return bytes((encoding.DESCRIBED, 0x53, code)) + value


def delivery_tag(token: UUID) -> bytes:
    """A lock token as the tag of a delivery: Service Bus writes it in .NET's byte order."""
    return token.bytes_le
