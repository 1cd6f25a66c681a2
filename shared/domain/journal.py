"""The journal of a session: entries, and the one decision about what a message means to it.

Law of this file: everything that decides whether a message is processed, and what the entry after
it looks like, is here, and is a pure function of the head and the message.
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
    SKIPPED = "skipped"  # refused for the reason given; state and cursors are unchanged


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
class Entry:
    """One step of a session: the messages it covers and everything that is true after it.

    `produced` is, per target session, the next sequence number of this session's own outputs.
    `attempt` tells two tries at the same position apart, whatever the store answered. `behind` are
    the regions that earlier entries owed something when this one was made: its own outputs must
    not reach them first.
    """

    session: str
    position: int
    status: Status
    covers: tuple[Covered, ...]
    state: Json
    attempt: str
    owner: Owner
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    produced: Mapping[str, int] = field(default_factory=dict)
    outbox: Outbox = NOTHING_OWED
    behind: tuple[str, ...] = ()
    reason: str | None = None


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
class Fenced:
    """A producer with a higher owner level has taken over."""

    level: int


type Decision = Proceed | Duplicate | Gap | Fenced


def decide(head: Entry | None, message: Message) -> Decision:
    """What the message means to a session whose newest entry is `head`.

    A cursor only grows, so Duplicate and Fenced stay true whatever was appended since `head` was
    read; Proceed and Gap may be out of date, and creating the next entry decides.
    """
    number = require_number(message)
    cursor = cursor_of(head, number.group)
    if number.sequence < cursor.next:
        return Duplicate()
    if number.level < cursor.level:
        return Fenced(cursor.level)
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


def completed(
    head: Entry | None,
    message: Message,
    *,
    state: Json,
    outbox: Outbox,
    produced: Mapping[str, int],
    attempt: str,
    owner: Owner,
    behind: tuple[str, ...] = (),
) -> Entry:
    """The entry that commits a handler's result: state, outputs and cursor in one document."""
    number = require_number(message)
    return Entry(
        session=message.session,
        position=next_position(head),
        status=Status.COMPLETED,
        covers=(cover(message),),
        state=state,
        attempt=attempt,
        owner=owner,
        cursors=advanced(head, number),
        produced=produced,
        outbox=outbox,
        behind=behind,
    )


def skipped(
    head: Entry | None,
    message: Message,
    *,
    reason: str,
    attempt: str,
    owner: Owner,
    behind: tuple[str, ...] = (),
) -> Entry:
    """The entry that names why a message is not processed; nothing else changes."""
    return Entry(
        session=message.session,
        position=next_position(head),
        status=Status.SKIPPED,
        covers=(cover(message),),
        state=head.state if head else {},
        attempt=attempt,
        owner=owner,
        cursors=head.cursors if head else {},
        produced=head.produced if head else {},
        behind=behind,
        reason=reason,
    )


def cover(message: Message) -> Covered:
    """What an entry keeps of a message."""
    return Covered(message.id, message.type, message.digest, require_number(message))


def advanced(head: Entry | None, number: Number) -> dict[str, Cursor]:
    """The cursors after a message with this number."""
    cursors = dict(head.cursors) if head else {}
    cursors[number.group] = Cursor(level=number.level, next=number.sequence + 1)
    return cursors
