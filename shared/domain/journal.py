"""The journal of a session: entries, and the one decision about what a message means to it.

Law of this file: everything that decides whether a message is processed is here, and is a pure
function of the head and the message. What the entry after it looks like is in entries.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED, Outbox

type Json = Mapping[str, Any]


class Status(StrEnum):
    """How an entry ended."""

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
    None before the first. `produced` is, per target session, the next number of this session's own
    outputs. `behind` are the regions that earlier entries owed something when this one was made:
    its outputs must not reach them first. `parked` counts, per producer group, the messages that
    wait beside the journal; `from_parked` says that this entry took one of them. `message` is the
    whole message of a parked or faulted entry.
    """

    session: str
    position: int
    status: Status
    covers: tuple[Covered, ...]
    state: Json | None
    state_at: int | None
    attempt: Attempt
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    produced: Mapping[str, int] = field(default_factory=dict)
    outbox: Outbox = NOTHING_OWED
    behind: tuple[str, ...] = ()
    parked: Mapping[str, int] = field(default_factory=dict)
    from_parked: bool = False
    halt: Halt | None = None
    message: Message | None = None
    reason: str | None = None
    resolution: Resolution | None = None


@dataclass(frozen=True, slots=True)
class Proceed:
    """The message's turn has come."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The message was covered by an earlier entry."""


@dataclass(frozen=True, slots=True)
class Gap:
    """An earlier message of the same group has not come yet."""

    expected: int


@dataclass(frozen=True, slots=True)
class Halted:
    """A fault stops the session until a person resolves it."""

    at: int


@dataclass(frozen=True, slots=True)
class Fenced:
    """A producer with a higher owner level has taken over."""

    level: int


type Decision = Proceed | Duplicate | Gap | Halted | Fenced


def decide(head: Entry | None, message: Message) -> Decision:
    """What the message means to a session whose newest entry is `head`.

    A cursor only grows, so Duplicate and Fenced stay true whatever was appended since `head` was
    read; the others may be out of date, and creating the next entry decides.
    """
    number = require_number(message)
    cursor = cursor_of(head, number.group)
    if number.sequence < cursor.next:
        return Duplicate()
    if number.level < cursor.level:
        return Fenced(cursor.level)
    if head is not None and head.halt is not None:
        return Duplicate() if number == head.halt.number else Halted(head.halt.at)
    if number.sequence > cursor.next:
        return Gap(cursor.next)
    return Proceed()


def require_number(message: Message) -> Number:
    """The message's number; a message without one is refused by name."""
    if message.number is None:
        raise InvalidMessage(f"message {message.id!r} carries no producer number")
    return message.number


def cursor_of(head: Entry | None, group: str) -> Cursor:
    """The session's cursor for a producer group; a group never seen starts at zero."""
    return head.cursors.get(group, Cursor()) if head else Cursor()


def next_position(head: Entry | None) -> int:
    """The position of the entry after `head`."""
    return head.position + 1 if head else 0


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
