"""A message on the wire: the CloudEvents 1.0 AMQP binding, in application properties.

Identity travels in application properties only: the host overwrites trigger metadata with
same-named fields of a JSON body, so broker properties cannot be trusted to be the sender's.
Attributes: `id`, `source`, `type`, `time`, the documented extension `partitionkey` (our session)
and, for numbered messages, `producergroup`, `ownerlevel` and `producersequence`; where answers are
wanted or given, `replyto`, `replysession` and `correlationid`; for one that its session may cancel,
`reminder`; and `traceparent`, an extension that CloudEvents documents.
https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/amqp-protocol-binding.md
"""

from collections.abc import Mapping

from shared.domain.errors import InvalidMessage
from shared.domain.message import (
    GROUP_CHARACTERS_MAX,
    OWN_SOURCE,
    RESERVED_PREFIX,
    Message,
    Number,
    refuse_reserved,
)
from shared.domain.trace import HEADER, read_traceparent

PREFIX = "cloudEvents_"
SPEC_VERSION = "1.0"
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
        attributes[HEADER] = message.traceparent
    if message.number is not None:
        attributes["producergroup"] = message.number.group
        attributes["ownerlevel"] = message.number.level
        attributes["producersequence"] = message.number.sequence
    return {PREFIX + name: value for name, value in attributes.items()}


def from_properties(properties: Mapping[str, object], body: bytes) -> Message:
    """Read a message that came by the queue.

    Raises InvalidMessage naming the attribute that is missing or wrong, and NotAllowed for what
    only the app itself may say, which it never says by the queue.
    """
    version = properties.get(PREFIX + "specversion")
    if version != SPEC_VERSION:
        raise InvalidMessage(f"CloudEvents {SPEC_VERSION} expected, not specversion {version!r}")
    message = Message(
        id=text(properties, "id"),
        session=text(properties, "partitionkey"),
        type=text(properties, "type"),
        body=body,
        number=number(properties),
        source=source(properties),
        traceparent=read_traceparent(properties.get(PREFIX + HEADER)),
        **optional(properties),
    )
    # A message with a number goes on whatever its type is: without an entry of its own, its number
    # would be missing, and what its producer sends next would stay parked.
    refuse_reserved(message.session, "" if message.number else message.type)
    return message


def source(properties: Mapping[str, object]) -> str:
    """Return who gave the message its id; senders that leave it out are one source, Lockstep's."""
    given = text(properties, "source") if PREFIX + "source" in properties else ""
    return given or OWN_SOURCE


def optional(properties: Mapping[str, object]) -> dict[str, str]:
    """The fields of a message that need not be there."""
    present = {a: f for a, f in OPTIONAL.items() if PREFIX + a in properties}
    return {field: text(properties, attribute) for attribute, field in present.items()}


def number(properties: Mapping[str, object]) -> Number | None:
    """The producer's number, or None where the sender gave none."""
    if not any(PREFIX + attribute in properties for attribute in NUMBERING):
        return None
    group = text(properties, "producergroup")
    if group.startswith(RESERVED_PREFIX):
        raise InvalidMessage(f"producer group {group!r} is reserved")
    if len(group) > GROUP_CHARACTERS_MAX:
        # Every later entry of the session names the group, so its length is not free.
        raise InvalidMessage(
            f"the producer group has {len(group)} characters, over {GROUP_CHARACTERS_MAX}"
        )
    return Number(
        group=group,
        level=integer(properties, "ownerlevel"),
        sequence=integer(properties, "producersequence"),
    )


def text(properties: Mapping[str, object], name: str) -> str:
    """A text attribute, or InvalidMessage."""
    value = properties.get(PREFIX + name)
    if not isinstance(value, str):
        raise InvalidMessage(f"attribute {name!r} is missing or not text")
    return value


def integer(properties: Mapping[str, object], name: str) -> int:
    """A whole number, or InvalidMessage; a bool is not a number."""
    value = properties.get(PREFIX + name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidMessage(f"attribute {name!r} is missing or not a whole number")
    return value
