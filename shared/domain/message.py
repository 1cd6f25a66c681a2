"""What a message is: identity, session, type, body and, where it has one, its number."""

import hashlib
import json
from dataclasses import dataclass

from shared.domain.errors import InvalidMessage

# Service Bus refuses longer message and session ids.
ID_CHARACTERS_MAX = 128
# A queue takes messages of 1 MiB; the rest of it is room for properties.
BODY_BYTES_MAX = 1_000_000
# A document takes 2 MB, and a body must fit into one as a JSON string, escapes included.
STORED_BYTES_MAX = 1_500_000
# No character takes more than three times its UTF-8 bytes when it is escaped, bar controls: six.
ESCAPE_FACTOR_MAX = 6
# Groups that begin so are the journal's own; senders may not use them.
RESERVED_PREFIX = "$"
# Sequence numbers are int32 and owner levels int16, as in the idempotent producers of Event Hubs.
SEQUENCE_MAX = 2**31 - 1
OWNER_LEVEL_MAX = 2**15 - 1


@dataclass(frozen=True, slots=True, order=True)
class Number:
    """A producer's number for a message: its group, its owner level, its place in the session."""

    group: str
    level: int
    sequence: int

    def __post_init__(self) -> None:
        if not self.group:
            raise InvalidMessage("a number needs a producer group")
        if not 0 <= self.level <= OWNER_LEVEL_MAX:
            raise InvalidMessage(f"owner level {self.level} is outside 0..{OWNER_LEVEL_MAX}")
        if not 0 <= self.sequence <= SEQUENCE_MAX:
            raise InvalidMessage(f"sequence number {self.sequence} is outside 0..{SEQUENCE_MAX}")


@dataclass(frozen=True, slots=True)
class Message:
    """One message. The body is UTF-8 JSON, kept as bytes: what was sent is what is compared.

    `time` is the sender's own ISO 8601 time; handlers see it as `now`, so a re-run sees the same.
    `reply_to` is the queue or topic for answers and `reply_session` their session; `correlation` is
    the id of the message that this one answers. Raises InvalidMessage for an empty or overlong id
    or session, an empty type, and a body that is empty, too large or not UTF-8.
    """

    id: str
    session: str
    type: str
    body: bytes
    number: Number | None = None
    time: str | None = None
    reply_to: str | None = None
    reply_session: str | None = None
    correlation: str | None = None

    def __post_init__(self) -> None:
        require_id("message id", self.id)
        require_id("session", self.session)
        if not self.type:
            raise InvalidMessage("the message has no type")
        if not self.body:
            raise InvalidMessage("the message has no body")
        if len(self.body) > BODY_BYTES_MAX:
            raise InvalidMessage(f"the body has {len(self.body)} bytes, over {BODY_BYTES_MAX}")
        if not is_utf8(self.body):
            raise InvalidMessage("the body is not UTF-8")
        if stored_bytes(self.body) > STORED_BYTES_MAX:
            raise InvalidMessage(f"the body, escaped, is over {STORED_BYTES_MAX} bytes")

    @property
    def digest(self) -> str:
        """What the message says, as a hex SHA-256; ids, numbers and times are not part of it."""
        return digest_content(self.type, self.body)


def digest_content(message_type: str, body: bytes) -> str:
    """The hex SHA-256 of type and body, with a zero byte between: types cannot contain one."""
    return hashlib.sha256(message_type.encode() + b"\0" + body).hexdigest()


def derive_id(*parts: str) -> str:
    """A stable id of 32 hex digits; parts are framed, so ("a_b", "c") is not ("a", "b_c")."""
    framed = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
    return hashlib.sha256(framed).hexdigest()[:32]


def is_utf8(body: bytes) -> bool:
    """Whether the bytes are text: the journal keeps bodies as text, byte for byte."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def stored_bytes(body: bytes) -> int:
    """At most how many bytes the body takes in a document; exact where it may matter."""
    if len(body) * ESCAPE_FACTOR_MAX <= STORED_BYTES_MAX:
        return len(body)
    return len(json.dumps(body.decode()))


def require_id(what: str, value: str) -> None:
    """Raise InvalidMessage unless the value can be an id on Service Bus."""
    if not value:
        raise InvalidMessage(f"the {what} is empty")
    if len(value) > ID_CHARACTERS_MAX:
        raise InvalidMessage(f"the {what} has {len(value)} characters, over {ID_CHARACTERS_MAX}")
