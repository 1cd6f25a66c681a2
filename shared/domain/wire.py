"""A message on the wire: the CloudEvents 1.0 AMQP binding, in application properties.

Identity travels in application properties only: the host overwrites trigger metadata with
same-named fields of a JSON body, so broker properties cannot be trusted to be the sender's.
Attributes: `id`, `source`, `type`, `time`, the documented extension `partitionkey` (our session)
and, for numbered messages, `producergroup`, `ownerlevel` and `producersequence`; where answers are
wanted or given, `replyto`, `replysession` and `correlationid`; for one that its session may cancel,
`reminder`; and `traceparent`, an extension that CloudEvents documents. Their properties may have
either prefix of the binding, and their values may be native ones or their text, whatever a sender's
SDK makes of them: one event is one message in each of its forms.
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from shared.domain.errors import InvalidMessage
from shared.domain.message import (
    GROUP_CHARACTERS_MAX,
    OWN_SOURCE,
    RESERVED_PREFIX,
    Message,
    Number,
    refuse_reserved,
)
from shared.domain.reports import UNREADABLE_TYPE, describe_unreadable

# Of an HTTP request, and the name of the CloudEvents extension.
TRACE_HEADER = "traceparent"
# Of version 00. What is not of this form is no reason to refuse a message: its trace begins anew.
TRACEPARENT = re.compile("00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# What is sent has the first; the second is the binding's own, for brokers that allow a colon.
PREFIX = "cloudEvents_"
PREFIXES = (PREFIX, "cloudEvents:")
# A whole number as text, as CloudEvents writes it.
WHOLE = re.compile("-?(?:0|[1-9][0-9]{0,18})")
SPEC_VERSION = "1.0"
# What fits one batch of every tier (256 KB in Standard), so all of it is taken or none.
BATCH_BYTES_MAX = 240_000
# What a message has beside its body: its properties, most of which are names.
MESSAGE_OVERHEAD_BYTES = 800
CONTENT_TYPE = "application/json"

OPTIONAL = {
    "time": "time",
    "replyto": "reply_to",
    "replysession": "reply_session",
    "correlationid": "correlation",
    "reminder": "reminder",
}

NUMBERING = ("producergroup", "ownerlevel", "producersequence")

type Property = str | int


def wire_bytes(message: Message) -> int:
    """Return about how many bytes a message has on the wire."""
    return len(message.body) + MESSAGE_OVERHEAD_BYTES


def to_properties(message: Message) -> dict[str, Property]:
    """The application properties that carry the message; the body travels beside them."""
    attributes: dict[str, Property] = {
        "specversion": SPEC_VERSION,
        "id": message.id,
        "source": message.source or OWN_SOURCE,
        "type": message.type,
        "partitionkey": message.session,
    }
    for attribute, field in OPTIONAL.items():
        if value := getattr(message, field):
            attributes[attribute] = value
    if message.traceparent is not None:
        attributes[TRACE_HEADER] = message.traceparent
    if message.number is not None:
        attributes["producergroup"] = message.number.group
        attributes["ownerlevel"] = message.number.level
        attributes["producersequence"] = message.number.sequence
    return {PREFIX + name: value for name, value in attributes.items()}


def from_properties(
    properties: Mapping[str, object], body: bytes, *, may_be_own: bool = False
) -> Message:
    """Read a message that came by the queue, or one of another queue that `may_be_own`.

    Raises InvalidMessage naming the attribute that is missing or wrong, and NotAllowed for what
    only the app itself may say, which it never says by the queue.
    """
    attributes = attributes_of(properties)
    version = attributes.get("specversion")
    if version != SPEC_VERSION:
        raise InvalidMessage(
            f"CloudEvents {SPEC_VERSION} expected, its attributes as application properties named"
            f" {' or '.join(f'{prefix}…' for prefix in PREFIXES)}, not specversion {version!r}"
        )
    present = {a: f for a, f in OPTIONAL.items() if a in attributes}
    given: dict[str, Any] = {field: text(attributes, name) for name, field in present.items()}
    trace = attributes.get(TRACE_HEADER)
    message = Message(
        id=text(attributes, "id"),
        session=text(attributes, "partitionkey"),
        type=text(attributes, "type"),
        body=body,
        number=number(attributes),
        # Who gave the message its id; senders that leave it out are one source, Lockstep's.
        source=("source" in attributes and text(attributes, "source")) or OWN_SOURCE,
        traceparent=read_traceparent(trace) if trace else None,
        **given,
    )
    # A message with a number goes on whatever its type is: without an entry of its own, its number
    # would be missing, and what its producer sends next would stay parked.
    if not may_be_own:
        refuse_reserved(message.session, "" if message.number else message.type)
    return message


def attributes_of(properties: Mapping[str, object], *, is_strict: bool = True) -> dict[str, object]:
    """The CloudEvents attributes among application properties, by their names.

    Raises InvalidMessage for one that both prefixes give, with different values; not `is_strict`,
    it is left out.
    """
    attributes: dict[str, object] = {}
    for name, value in properties.items():
        if not name.startswith(PREFIXES):
            continue
        attribute = name[len(PREFIX) :]
        other = attributes.setdefault(attribute, value)
        if str(other) != str(value):
            if is_strict:
                raise InvalidMessage(
                    f"attribute {attribute!r} is given twice, as {other!r} and as {value!r}"
                )
            attributes[attribute] = None
    return attributes


def stand_in(properties: Mapping[str, object], report: str, reason: str) -> Message | None:
    """The message that takes the number of one that cannot be read, and leads to its report.

    It has what can be read of the rest, for the correction that takes its place. None where its
    session, id or number cannot be read: nobody knows then which number would be missing.
    """
    attributes = attributes_of(properties, is_strict=False)
    try:
        place = number(attributes)
        if place is None:
            return None
        session, body = text(attributes, "partitionkey"), describe_unreadable(report, reason)
        refuse_reserved(session, "")
        message = Message(text(attributes, "id"), session, UNREADABLE_TYPE, body, place)
    except InvalidMessage:
        return None
    for attribute, field in {**OPTIONAL, "source": "source"}.items():
        with suppress(InvalidMessage):
            kept: dict[str, Any] = {field: text(attributes, attribute) or getattr(message, field)}
            message = replace(message, **kept)
    return message


def number(attributes: Mapping[str, object]) -> Number | None:
    """The producer's number, or None where the sender gave none."""
    if not any(attribute in attributes for attribute in NUMBERING):
        return None
    group = text(attributes, "producergroup")
    if group.startswith(RESERVED_PREFIX):
        raise InvalidMessage(f"producer group {group!r} is reserved")
    if len(group) > GROUP_CHARACTERS_MAX:
        # Every later entry of the session names the group, so its length is not free.
        raise InvalidMessage(
            f"the producer group has {len(group)} characters, over {GROUP_CHARACTERS_MAX}"
        )
    places: list[int] = []
    for name in ("ownerlevel", "producersequence"):
        value = attributes.get(name)
        if isinstance(value, str) and WHOLE.fullmatch(value):
            value = int(value)
        # A bool is not a number.
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidMessage(f"attribute {name!r} is missing or not a whole number")
        places.append(value)
    return Number(group, *places)


def read_traceparent(text: object) -> str | None:
    """A stranger's `traceparent`, or None for what is none."""
    return text if isinstance(text, str) and TRACEPARENT.fullmatch(text) else None


def text(attributes: Mapping[str, object], name: str) -> str:
    """A text attribute, or InvalidMessage."""
    value = attributes.get(name)
    if not isinstance(value, str):
        raise InvalidMessage(f"attribute {name!r} is missing or not text")
    return value
