"""One task's rows through the producer: many sessions at once, each in its order."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import batched
from typing import Protocol

from pyspark.sql import Row

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message, Number
from spark.pace import Pace
from spark.schemas import EVENTS

# How many sessions a task sends to at the same time.
SESSIONS_AT_ONCE = 16
# The feed is the only owner of its group: two feeds of one group would number against each other.
OWNER_LEVEL = 0


class BrokenSequence(InvalidMessage):
    """A session's numbers skip or run backwards within a partition; nothing more was sent."""


class Answer(Protocol):
    """What the producer says of the messages it made safe."""

    @property
    def sent(self) -> int:
        """How many are in at least one region."""

    @property
    def owed(self) -> int:
        """How many copies another region still has to get."""


type Send = Callable[[Sequence[Message]], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages made safe, and the copies of them still owed to a region."""

    sent: int = 0
    owed: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(self.sent + other.sent, self.owed + other.owed)


@dataclass(slots=True)
class Continuity:
    """Remembers the last number of every session and group, and refuses what does not follow."""

    last: dict[tuple[str, str], int] = field(default_factory=dict)

    def require(self, messages: Iterable[Message]) -> None:
        """Raise BrokenSequence unless each message continues its session; the first may be any."""
        for message in messages:
            number = number_of(message)
            place = (message.session, number.group)
            before = self.last.get(place)
            if before is not None and number.sequence != before + 1:
                raise BrokenSequence(
                    f"session {message.session!r} of group {number.group!r} goes from number "
                    f"{before} to {number.sequence} within a partition; write it repartitioned by "
                    "session and sorted by sequence within partitions"
                )
            self.last[place] = number.sequence


async def send_rows(
    rows: Iterable[Row], send: Send, *, rows_max: int, pace: Pace, report: Callable[[Counts], None]
) -> Counts:
    """Send rows (schemas.EVENTS) buffer by buffer; `report` hears the sum after each.

    A buffer is checked whole before any of it is sent, and is done before the next one begins, so
    a session's messages never overtake each other. Raises InvalidMessage for a row that is no
    event, BrokenSequence for a gap or disorder, and whatever `send` raises.
    """
    total, continuity = Counts(), Continuity()
    for buffer in batched(rows, pace.burst(rows_max), strict=False):
        messages = [message_of(row) for row in buffer]
        continuity.require(messages)
        await pace.admit(len(messages))
        total += await send_sessions(messages, send)
        report(total)
    return total


async def send_sessions(messages: Sequence[Message], send: Send) -> Counts:
    """Send each session's messages, some sessions at a time; the first failure ends it all."""
    turns = asyncio.Semaphore(SESSIONS_AT_ONCE)

    async def in_turn(part: Sequence[Message]) -> Counts:
        async with turns:
            answer = await send(part)
        return Counts(answer.sent, answer.owed)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(in_turn(part)) for part in by_session(messages)]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return sum((task.result() for task in tasks), Counts())


def by_session(messages: Iterable[Message]) -> Iterator[Sequence[Message]]:
    """The messages of each session and group, in their order."""
    parts: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in messages:
        parts[message.session, number_of(message).group].append(message)
    yield from parts.values()


def message_of(row: Row) -> Message:
    """A row as the message it stands for; raises InvalidMessage naming what is null in it."""
    missing = [name for name in EVENTS.names if row[name] is None]
    if missing:
        raise InvalidMessage(f"an event has no {', '.join(missing)}: {row}")
    return Message(
        id=row["id"],
        session=row["session"],
        type=row["type"],
        body=row["body"].encode(),
        number=Number(group=row["group"], level=OWNER_LEVEL, sequence=row["sequence"]),
        time=row["time"],
    )


def number_of(message: Message) -> Number:
    """The number every message of a feed carries."""
    if message.number is None:
        raise InvalidMessage(f"message {message.id!r} has no number")
    return message.number
