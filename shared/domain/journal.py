"""The journal of a session: entries, and the one decision about what a message means to it.

Law of this file: everything that decides whether a message is processed is here, and is a pure
function of the head and the message. What the entry after it looks like is in entries.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED, Outbox

# The group under which the journal itself numbers what its sender did not, in order of arrival.
ARRIVALS = "$arrivals"

type Json = Mapping[str, Any]
# By destination and target session, the next number of a session's own outputs.
type Produced = Mapping[str, Mapping[str, int]]


class Status(StrEnum):
    """How an entry ended, or that it has not yet."""

    WORKING = "working"  # claimed: an effectful handler is running, until the lease runs out
    COMPLETED = "completed"  # the handler ran; state and outputs are its result
    SKIPPED = "skipped"  # not processed, for the reason given; the state is unchanged
    PARKED = "parked"  # kept beside the journal, because its turn has not come
    FAULTED = "faulted"  # its handler failed for good; kept with body and reason


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a session expects next of one producer group, and the highest owner level seen."""

    level: int = 0
    next: int = 0


@dataclass(frozen=True, slots=True)
class Covered:
    """A message that an entry covers: enough to recognise it, not its body."""

    id: str
    type: str
    digest: str
    number: Number


@dataclass(frozen=True, slots=True)
class Mark:
    """What an un-numbered message's marker says: its content, and the entry that took it last."""

    covered: Covered
    position: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Who created an entry."""

    region: str
    instance: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at an entry; its id tells it from every other, whatever the store answered."""

    id: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a claim holds since its owner wrote it last, and which try at its message it is.

    `since` is when that was, by the store's clock, where others have written the claim after it.
    """

    seconds: float
    tries: int = 1
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """The fault that stops a session: where its entry is, and which message it holds."""

    at: int
    number: Number


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a person decided about a fault."""

    action: str
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a session: the messages it covers and everything that is true after it.

    `state` is None where the step did not change it; `state_at` is the position that holds it, or
    None before the first. `produced` are the next numbers of this session's own outputs. `behind`
    are the regions that earlier entries owed something when this one was made: its outputs must not
    reach them first. `parked` counts, per producer group, the messages that wait beside the
    journal; `from_parked` says that this entry took one of them. `message` is the whole message
    where it is still needed: claimed, parked, faulted, or to be run again for its outputs.
    `captured` is what the handler looked up once. `lease` is there while the entry is a claim.
    `answer` is what the handler said to whoever applied the message as a command.
    """

    session: str
    position: int
    status: Status
    covers: tuple[Covered, ...]
    state: Json | None
    state_at: int | None
    attempt: Attempt
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    produced: Produced = field(default_factory=dict)
    outbox: Outbox = NOTHING_OWED
    behind: tuple[str, ...] = ()
    parked: Mapping[str, int] = field(default_factory=dict)
    from_parked: bool = False
    halt: Halt | None = None
    message: Message | None = None
    reason: str | None = None
    resolution: Resolution | None = None
    captured: Json = field(default_factory=dict)
    lease: Lease | None = None
    answer: Json | None = None


@dataclass(frozen=True, slots=True)
class Proceed:
    """The message's turn has come."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message was covered by an earlier entry; `checked` says that the content was the same.

    Where it is not, the entry that covers the message is older than the head.
    """

    checked: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """The message's id or number was used before with other content."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An earlier message of the same group has not come yet."""

    expected: int


@dataclass(frozen=True, slots=True)
class Busy:
    """Somebody claims the session; `same` says that it is for this very message."""

    at: int
    same: bool


@dataclass(frozen=True, slots=True)
class Halted:
    """A fault stops the session until a person resolves it."""

    at: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A producer with a higher owner level has taken over."""

    level: int


type Decision = Proceed | Duplicate | Conflict | Gap | Busy | Halted | Fenced


def decide(head: Entry | None, message: Message, *, from_parked: bool = False) -> Decision:
    """What the message means to a session whose newest entry is `head`.

    A cursor only grows, so Duplicate, Conflict and Fenced stay true whatever was appended since
    `head` was read; the others may be out of date, and creating the next entry decides. A message
    from beside the journal is the first of those that wait.
    """
    if head is None:
        return Proceed() if is_next(None, message) else Gap(0)
    if not from_parked and (covered := covering(head, message)) is not None:
        return met_again(head, covered, message)
    if (ended := used_up(head, message)) is not None:
        return ended
    if head.status is Status.WORKING:
        return Busy(head.position, same=False)
    if head.halt is not None:
        return Duplicate() if is_halted_on(head, message) else Halted(head.halt.at)
    turn_has_come = is_next(head, message) or (from_parked and message.number is None)
    group = message.number.group if message.number else ARRIVALS
    return Proceed() if turn_has_come else Gap(cursor_of(head, group).next)


def used_up(head: Entry, message: Message) -> Duplicate | Fenced | None:
    """Whether the message's number was passed, or its producer was."""
    if message.number is None:
        return None
    cursor = cursor_of(head, message.number.group)
    if is_passed(head, message):
        return Duplicate()
    if message.number.level < cursor.level and head.status is not Status.WORKING:
        return Fenced(cursor.level)
    return None


def covering(head: Entry, message: Message) -> Covered | None:
    """What the head says of this very message, or of another with its id or number."""
    for covered in head.covers:
        if message.number is None:
            if covered.number.group == ARRIVALS and covered.id == message.id:
                return covered
        elif covered.number == message.number or (
            is_place(covered.number, message) and holds_its_number(head, message)
        ):
            return covered
    return None


def is_place(number: Number, message: Message) -> bool:
    """Whether the message has this number, be it of another owner level."""
    mine = message.number
    return mine is not None and (mine.group, mine.sequence) == (number.group, number.sequence)


def holds_its_number(head: Entry, message: Message) -> bool:
    """Whether the head uses the message's number up; one parked or refused leaves it free."""
    return head.status is Status.WORKING or is_passed(head, message) or is_halted_on(head, message)


def is_passed(head: Entry, message: Message) -> bool:
    """Whether the session has gone beyond the message's number."""
    number = message.number
    return number is not None and number.sequence < cursor_of(head, number.group).next


def is_halted_on(head: Entry, message: Message) -> bool:
    """Whether the message's number is that of the fault that stops the session."""
    return head.halt is not None and is_place(head.halt.number, message)


def met_again(head: Entry, covered: Covered, message: Message) -> Decision:
    """What a message means that the head covers."""
    if covered.digest != message.digest:
        return Conflict()
    if head.status is Status.WORKING:
        return Busy(head.position, same=True)
    return Duplicate(checked=True)


def is_next(head: Entry | None, message: Message) -> bool:
    """Whether nothing has to come before the message."""
    if message.number is None:
        return head is None or not head.parked.get(ARRIVALS)
    return message.number.sequence == cursor_of(head, message.number.group).next


def advanced(cursors: Mapping[str, Cursor], number: Number) -> dict[str, Cursor]:
    """The cursors after a message of this number."""
    return {**cursors, number.group: Cursor(level=number.level, next=number.sequence + 1)}


def cursor_of(head: Entry | None, group: str) -> Cursor:
    """The session's cursor for a producer group; a group never seen starts at zero."""
    return head.cursors.get(group, Cursor()) if head else Cursor()


def state_position(head: Entry | None) -> int | None:
    """Where the state after `head` is kept; None while there is none."""
    if head is None:
        return None
    return head.state_at if head.state is None else head.position


def regions_behind(head: Entry | None) -> tuple[str, ...]:
    """The regions to which the session still owes outputs, as far as its head knows."""
    if head is None:
        return ()
    owed = head.outbox.regions if head.outbox.owing else ()
    return tuple(dict.fromkeys((*head.behind, *owed)))
