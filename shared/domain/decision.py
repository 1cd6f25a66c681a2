"""The one decision: what a message means to a session whose newest entry is known.

The decision is a table. `situation_of` says which of a few facts hold for the head and the message;
the first rule of `RULES` that fits them gives the decision. Nothing here reads or writes anything,
and docs/guarantees.md shows the same table, generated from the rules.

Copies of a message without a number are recognised by a marker, which is kept for a time. Such a
message is taken only while an earlier copy's marker would still be there (`explain_expiry`).
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from shared.domain.errors import InvalidMessage
from shared.domain.journal import ARRIVALS, Cursor, Entry, MessageIdentity, Status
from shared.domain.message import Message, Number

# A message without a number has to say when it was sent; clocks may be apart by so much.
CLOCK_SLACK_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class Proceed:
    """The message's turn has come."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """An earlier entry processed the message; `checked` says that the content was compared.

    Where it was not, the entry in question is older than the head and has to be looked up.
    """

    checked: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """The message's id or number was used before with other content, which has this digest."""

    digest: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """An earlier message of the same group has not come yet."""

    expected: int


@dataclass(frozen=True, slots=True)
class Busy:
    """The newest entry is a claim; `same` says that it was made for this very message."""

    at: int
    same: bool


@dataclass(frozen=True, slots=True)
class Halted:
    """A fault stops the session until a person resolves it."""

    at: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The session has ended: it takes nothing new."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """A producer with a higher owner level has taken over."""

    level: int


type Decision = Proceed | Duplicate | Conflict | Gap | Busy | Halted | Ended | Fenced


class SessionState(StrEnum):
    EMPTY = "empty"  # no entry yet
    OPEN = "open"  # the newest entry has ended, and nothing stops the session
    CLAIMED = "claimed"  # the newest entry is a claim
    HALTED = "halted"  # a fault stops the session
    ENDED = "ended"  # it takes nothing new any more


class HeadContent(StrEnum):
    """The content that the newest entry holds under the message's id or number."""

    NOTHING = "nothing"
    SAME = "this message"
    OTHER = "other content"


class NumberPlace(StrEnum):
    """The place of the message's number relative to the session's cursor for its group."""

    PASSED = "passed"
    FENCED = "of a fenced producer"
    FAULT = "that of the fault"
    NEXT = "next"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that decide, and nothing else."""

    session: SessionState
    newest: HeadContent
    place: NumberPlace


@dataclass(frozen=True, slots=True)
class Rule:
    """One row of the table. A column that names nothing fits everything."""

    decision: type[Decision]
    why: str
    session: SessionState | None = None
    newest: HeadContent | None = None
    place: NumberPlace | None = None


CLAIMED, HALTED = SessionState.CLAIMED, SessionState.HALTED
ENDED = SessionState.ENDED
SAME, OTHER = HeadContent.SAME, HeadContent.OTHER

# The first rule that fits decides. A cursor only grows, so Duplicate, Conflict and Fenced stay true
# whatever was appended since the head was read. Every other decision may be out of date by the time
# it is carried out; then creating the next entry fails, and the decision is made again.
RULES: tuple[Rule, ...] = (
    Rule(Conflict, "Its id or number was used for something else.", newest=OTHER),
    Rule(Busy, "A worker is running its handler now.", session=CLAIMED, newest=SAME),
    Rule(Duplicate, "The newest entry names it.", newest=SAME),
    Rule(Duplicate, "An older entry processed it.", place=NumberPlace.PASSED),
    Rule(Busy, "A worker is running the handler of another message.", session=CLAIMED),
    Rule(Fenced, "A producer of a higher owner level has taken over.", place=NumberPlace.FENCED),
    Rule(Duplicate, "It is the message that faulted.", session=HALTED, place=NumberPlace.FAULT),
    Rule(Halted, "A fault stops the session.", session=HALTED),
    Rule(Ended, "The session has ended.", session=ENDED, place=NumberPlace.NEXT),
    Rule(Proceed, "Nothing has to come before it.", place=NumberPlace.NEXT),
    Rule(Gap, "An earlier message of its group is missing.", place=NumberPlace.AHEAD),
)


def decide(head: Entry | None, message: Message, *, from_parked: bool = False) -> Decision:
    """Return what the message means to a session whose newest entry is `head`.

    `from_parked` says that the message was parked and is the first of those that wait.
    """
    rule = rule_for(situation_of(head, message, from_parked=from_parked))
    if rule.decision is Proceed:
        return Proceed()
    if rule.decision is Ended:
        return Ended()
    cursor = cursor_of(head, message.number.group if message.number else ARRIVALS)
    is_same = rule.newest is SAME
    decision: Decision | None = None
    if rule.decision is Duplicate:
        decision = Duplicate(checked=is_same)
    elif rule.decision is Gap:
        decision = Gap(cursor.next)
    elif rule.decision is Fenced:
        decision = Fenced(cursor.level)
    elif rule.decision is Conflict and head is not None:
        other = identity_in(head, message, cursor)
        decision = Conflict(other.digest if other else None)
    elif rule.decision is Busy and head is not None:
        decision = Busy(head.position, same=is_same)
    elif rule.decision is Halted and head is not None and head.halt is not None:
        decision = Halted(head.halt.at)
    if decision is None:
        # Never process a message because a rule and its situation do not belong together.
        raise ValueError(f"the rule {rule.why!r} does not fit the head")
    return decision


def rule_for(situation: Situation) -> Rule:
    for rule in RULES:
        if (
            rule.session in (None, situation.session)
            and rule.newest in (None, situation.newest)
            and rule.place in (None, situation.place)
        ):
            return rule
    raise ValueError(f"no rule fits {situation}")


def situation_of(head: Entry | None, message: Message, *, from_parked: bool) -> Situation:
    number, halt = message.number, head.halt if head else None
    group = number.group if number else ARRIVALS
    cursor = head.cursors.get(group, Cursor()) if head else Cursor()
    if head is None:
        session = SessionState.EMPTY
    elif head.status is Status.WORKING:
        session = CLAIMED
    elif head.is_ended:
        session = ENDED
    else:
        session = SessionState.OPEN if halt is None else HALTED
    newest = HeadContent.NOTHING
    # A parked message is named by the entry that parked it, which did not process it.
    same = None if head is None or from_parked else identity_in(head, message, cursor)
    if same is not None:
        newest = SAME if same.digest == message.digest else OTHER
    if number is None:
        # Messages without a number come in the order of their arrival.
        is_next = head is None or from_parked or not head.parked.get(ARRIVALS)
        place = NumberPlace.NEXT if is_next else NumberPlace.AHEAD
    elif number.sequence < cursor.next:
        place = NumberPlace.PASSED
    elif number.level < cursor.level:
        place = NumberPlace.FENCED
    elif halt is not None and is_same_place(halt.number, number):
        place = NumberPlace.FAULT
    else:
        place = NumberPlace.NEXT if number.sequence == cursor.next else NumberPlace.AHEAD
    return Situation(session, newest, place)


def identity_in(head: Entry, message: Message, cursor: Cursor) -> MessageIdentity | None:
    """Return the newest entry's identity of this message, or of another with its id or number.

    A number that was only parked or refused is still free, so another owner level may use it.
    """
    number = message.number
    is_used = number is not None and (
        head.status is Status.WORKING
        or number.sequence < cursor.next
        or (head.halt is not None and is_same_place(head.halt.number, number))
    )
    for identity in head.identities:
        given = identity.number
        if number is None:
            if given.group == ARRIVALS and (identity.source, identity.id) == (
                message.source,
                message.id,
            ):
                return identity
        elif (given.group, given.sequence) == (number.group, number.sequence) and (
            is_used or given.level == number.level
        ):
            return identity
    return None


def is_same_place(one: Number, other: Number) -> bool:
    """Return whether two numbers are the same place of a group, whatever their owner levels."""
    return (one.group, one.sequence) == (other.group, other.sequence)


def cursor_of(head: Entry | None, group: str) -> Cursor:
    """The session's cursor for a producer group; one that was never seen starts at zero."""
    return head.cursors.get(group, Cursor()) if head else Cursor()


def marker_seconds(window_seconds: float) -> int:
    """Return how long a marker is kept, so that no copy within the window outlives it."""
    return int(window_seconds) + 2 * CLOCK_SLACK_SECONDS


def explain_expiry(message: Message, today: float, window_seconds: float) -> str | None:
    """Return why an un-numbered message is too old to be taken, None where it is not.

    `today` is in seconds since 1970. Raises InvalidMessage where the message does not say when it
    was sent, or says that it will be.
    """
    if message.number is not None:
        return None
    age = today - sending_time(message)
    if age < -CLOCK_SLACK_SECONDS:
        raise InvalidMessage(f"message {message.id!r} comes from {-age:.0f} s in the future")
    if age <= window_seconds:
        return None
    return f"un-numbered and {age:.0f} s old, over the {window_seconds:.0f} s that are remembered"


def sending_time(message: Message) -> float:
    """Return the time of sending, in seconds since 1970; a time without a zone is UTC."""
    if message.time is None:
        raise InvalidMessage(f"message {message.id!r} has neither a number nor a time")
    try:
        # What `parse_moment` does, without the call: all messages without a number come here.
        sent = datetime.fromisoformat(message.time.upper())
    except ValueError:
        raise InvalidMessage(f"message {message.id!r} has no ISO 8601 time") from None
    return (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
