"""A message: identity, session, type, body and, where it has one, its number."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log

from shared.domain.errors import InvalidMessage, NotAllowed

# Service Bus refuses longer message and session ids, and counts characters as UTF-16 does: an emoji
# is two.
ID_CHARACTERS_MAX = 128
TYPE_CHARACTERS_MAX = 256
TIME_CHARACTERS_MAX = 64
# The longest name of a queue or a topic.
QUEUE_CHARACTERS_MAX = 260
# A queue of Premium takes messages of 1 MiB, one of Standard 256 KiB; the rest of it is room for
# properties. Whatever the sku is, a message of the first size can be kept and read.
BODY_BYTES_MAX = 1_000_000
BODY_BYTES_MAX_BY_SKU = {"Standard": 250_000, "Premium": BODY_BYTES_MAX}
# A document takes 2 MB, and a body must fit into one as a JSON string, escapes included.
STORED_BYTES_MAX = 1_500_000
# No character takes more than three times its UTF-8 bytes when it is escaped, bar controls: six.
ESCAPE_FACTOR_MAX = 6
# A body of no more bytes fits into a document, whatever has to be escaped in it.
SAFE_BYTES_MAX = STORED_BYTES_MAX // ESCAPE_FACTOR_MAX
# Groups that begin so are the journal's own; senders may not use them.
RESERVED_PREFIX = "$"
# Before a session's name, the group of its own outputs: the longest group there can be.
OUTPUTS_PREFIX = "session:"
# The same for outputs to the app's own queue. They are counted for themselves, so their group must
# be another one: a session that gets both would take one number for two messages.
HERE_PREFIX = "here:"
GROUP_CHARACTERS_MAX = len(OUTPUTS_PREFIX) + ID_CHARACTERS_MAX
# The CloudEvents source of what Lockstep sends itself.
OWN_SOURCE = "lockstep"
# A source may be a long URI, but the journal keeps it with every message that has no number.
SOURCE_CHARACTERS_MAX = 1_024
# Only the app itself writes to the journals of sagas, and only it sends messages of these types.
SAGA_SESSION_PREFIX = "saga:"
OWN_TYPE_PREFIX = "lockstep."
# Halves of surrogate pairs cannot be written down; the others forge lines of a log, hide some, or
# have a name read as another one, from right to left.
UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
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

    `source` says who gave the id to a message without a number: two sources may use the same id.
    It is empty for a message that an older release stored. `time` is the sender's own ISO 8601
    time; handlers see it as `now`, so a re-run sees the same. `reply_to` is the queue or topic for
    answers and `reply_session` their session; `correlation` is the id of the message that this one
    answers. `traceparent` is its place in a trace, which identifies nothing. `reminder`
    is there where the message becomes visible at its `time` and not before: the name under which
    its session may cancel it, or empty. `delay` says how many seconds later than the preferred
    region the others see their copies; it is not on the wire, and None leaves it to the type and to
    the settings. `saga` is the key of the saga whose command it is; nor is that on the wire.

    Raises InvalidMessage for an empty id, session or type, a field that is too long or no text, a
    type with control characters, and a body that is empty, too large or not UTF-8.
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
    source: str = OWN_SOURCE
    traceparent: str | None = None
    reminder: str | None = None
    delay: float | None = None
    saga: str | None = None

    def __post_init__(self) -> None:
        require_text("message id", self.id)
        require_text("session", self.session)
        require_text("type", self.type, TYPE_CHARACTERS_MAX)
        if UNPRINTABLE.search(self.type):
            raise InvalidMessage(f"the type holds control characters: {self.type!r}")
        for what, value, longest in (
            ("time", self.time, TIME_CHARACTERS_MAX),
            ("place for answers", self.reply_to, QUEUE_CHARACTERS_MAX),
            ("session for answers", self.reply_session, ID_CHARACTERS_MAX),
            ("correlation id", self.correlation, ID_CHARACTERS_MAX),
            ("source", self.source, SOURCE_CHARACTERS_MAX),
            ("reminder", self.reminder, ID_CHARACTERS_MAX),
        ):
            if value:
                require_text(what, value, longest)
        if not self.body:
            raise InvalidMessage("the message has no body")
        if len(self.body) > BODY_BYTES_MAX:
            self.require_body_within(BODY_BYTES_MAX)
        try:
            # The journal keeps bodies as text, byte for byte.
            self.body.decode()
        except UnicodeDecodeError:
            raise InvalidMessage("the body is not UTF-8") from None
        if len(self.body) > SAFE_BYTES_MAX and stored_bytes(self.body) > STORED_BYTES_MAX:
            raise InvalidMessage(f"the body, escaped, is over {STORED_BYTES_MAX} bytes")

    def require_body_within(self, most: int) -> None:
        """Raise InvalidMessage for a body of more bytes."""
        if len(self.body) > most:
            raise InvalidMessage(f"the body has {len(self.body)} bytes, over {most}")

    @property
    def digest(self) -> str:
        """The hex SHA-256 of the message's content; ids, numbers and times are not part of it."""
        return digest_content(self.type, self.body)

    @property
    def identity_parts(self) -> tuple[str, ...]:
        """The parts that identify the message: ids and randomness that follow derive from these.

        They stay the same for every copy, in every region and after a correction by a person. A
        message that an older release stored keeps the parts that release used, so that its handler
        makes the same ids as before when it is run again.
        """
        if not self.source:
            return (self.session, self.id)
        if self.number is None:
            return (self.session, "source", self.source, self.id)
        # The owner level is part of it: a number that a fenced producer did not get to use is used
        # again for another message.
        number = self.number
        return (self.session, "number", number.group, str(number.level), str(number.sequence))


def digest_content(message_type: str, body: bytes) -> str:
    """The hex SHA-256 of type and body, with a zero byte between: types cannot contain one."""
    return hashlib.sha256(message_type.encode() + b"\0" + body).hexdigest()


def home_region(session: str, regions: Sequence[str]) -> str:
    """The region that a session belongs to by its name alone: everybody finds the same one."""
    return regions[int(derive_id(session)[:8], 16) % len(regions)]


def weighted_region(session: str, weights: Mapping[str, float]) -> str:
    """The region that a session belongs to by its name and the regions' weights alone.

    Of many sessions each region has its share by weight. A change of one weight moves sessions to
    that region or from it, and none between others; the order of regions moves none.
    """

    def waits(region: str) -> float:
        # A race of exponential waits, whose rates are the weights: each wins as often as its share.
        drawn = (int(derive_id(session, region)[:13], 16) + 1) / 16**13
        return -log(drawn) / weights[region]

    return min((region for region in weights if weights[region]), key=waits)


def derive_id(*parts: str) -> str:
    """A stable id of 32 hex digits; parts are framed, so ("a_b", "c") is not ("a", "b_c")."""
    framed = b"".join(len(part.encode()).to_bytes(4, "big") + part.encode() for part in parts)
    return hashlib.sha256(framed).hexdigest()[:32]


def stored_bytes(body: bytes) -> int:
    """At most how many bytes the body takes in a document; exact where it may matter."""
    return len(body) if len(body) <= SAFE_BYTES_MAX else len(json.dumps(body.decode()))


def parse_moment(text: str) -> datetime:
    """A sender's time by ISO 8601 or RFC 3339, which without a zone is UTC; raises ValueError."""
    # RFC 3339 has its letters in either case.
    time = datetime.fromisoformat(text.upper())
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def require_text(what: str, value: object, longest: int = ID_CHARACTERS_MAX) -> None:
    """Raise InvalidMessage unless the value is text of 1 to `longest` characters of UTF-16."""
    if not isinstance(value, str):
        raise InvalidMessage(f"the {what} is no text")
    if not value:
        raise InvalidMessage(f"the {what} is empty")
    try:
        length = len(value) if value.isascii() else len(value.encode("utf-16-le")) // 2
    except UnicodeEncodeError:
        raise InvalidMessage(f"the {what} is no text: {value!r}") from None
    if length > longest:
        raise InvalidMessage(f"the {what} has {length} characters, over {longest}")


def cut_text(text: str, longest: int) -> str:
    """The beginning of a text, of at most `longest` characters of UTF-16."""
    return text.encode("utf-16-le", "ignore")[: 2 * longest].decode("utf-16-le", "ignore")


def require_line(what: str, text: str, longest: int) -> None:
    """Raise InvalidMessage unless a person can have written this, and a log can show it."""
    require_text(what, text, longest)
    if not text.strip() or UNPRINTABLE.search(text):
        raise InvalidMessage(f"the {what} is blank or holds control characters: {text!r}")


def refuse_reserved(session: str, message_type: str) -> None:
    """Raise NotAllowed for what nobody outside may say: the app itself never sends it this way.

    Raises InvalidMessage for a session that addresses, tools and pages could not name. A journal
    that has one keeps it.
    """
    if UNPRINTABLE.search(session):
        raise InvalidMessage(f"the session holds control characters: {session!r}")
    if session.startswith(SAGA_SESSION_PREFIX):
        raise NotAllowed(f"session {session!r} is a saga's: it takes nothing from outside")
    if message_type.startswith(OWN_TYPE_PREFIX):
        raise NotAllowed(f"type {message_type!r} is the app's own: nobody outside may send it")
