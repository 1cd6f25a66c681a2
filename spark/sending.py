"""One task's rows through the producer: many sessions at once, each in its order."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import batched, pairwise
from typing import Protocol

from pyspark.sql import Row

from shared.domain.errors import InvalidMessage
from shared.domain.message import Message, Number
from spark.pace import Pace
from spark.patience import Patience
from spark.schemas import EVENTS

# How many sessions a task sends to at the same time.
SESSIONS_AT_ONCE = 16
# What an event must say; the time is the sender's to leave out.
REQUIRED = tuple(name for name in EVENTS.names if name != "time")


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
    """Remembers the last number of every session and group, and refuses what does not follow.

    Where gaps are allowed, numbers may skip; they never run backwards.
    """

    gaps: bool = False
    last: dict[tuple[str, str], int] = field(default_factory=dict)

    def require(self, messages: Iterable[Message]) -> None:
        """Raise BrokenSequence unless each message continues its session; the first may be any."""
        for message in messages:
            number = number_of(message)
            place = (message.session, number.group)
            before = self.last.get(place)
            if before is not None and not self.follows(before, number.sequence):
                raise BrokenSequence(
                    f"session {message.session!r} of group {number.group!r} goes from number "
                    f"{before} to {number.sequence} within a partition; write it repartitioned by "
                    "session and sorted by sequence within partitions"
                )
            self.last[place] = number.sequence

    def follows(self, before: int, after: int) -> bool:
        """Whether a number may come after another."""
        return after > before if self.gaps else after == before + 1


@dataclass(frozen=True, slots=True)
class Manner:
    """How a task sends: rows held at once, pace, owner level, whether gaps are fine, patience."""

    rows_max: int
    pace: Pace = field(default_factory=Pace)
    owner_level: int = 0
    gaps: bool = False
    patience: Patience = field(default_factory=Patience)


async def send_rows(
    rows: Iterable[Row], send: Send, manner: Manner, report: Callable[[Counts], None]
) -> Counts:
    """Send rows (schemas.EVENTS) buffer by buffer; `report` hears the sum after each.

    A buffer is checked whole before any of it is sent, and is done before the next one begins, so
    a session's messages never overtake each other. Raises InvalidMessage for a row that is no
    event, BrokenSequence for a gap or disorder, and whatever `send` raises.
    """
    total, continuity = Counts(), Continuity(manner.gaps)
    for buffer in batched(rows, manner.pace.burst(manner.rows_max), strict=False):
        messages = [message_of(row, manner.owner_level) for row in buffer]
        continuity.require(messages)
        await manner.pace.admit(len(messages))
        total += await send_sessions(messages, send, manner.patience)
        report(total)
    return total


async def send_sessions(messages: Sequence[Message], send: Send, patience: Patience) -> Counts:
    """Send each session's messages, some sessions at a time; the first failure ends it all."""
    turns = asyncio.Semaphore(SESSIONS_AT_ONCE)

    async def in_turn(part: Sequence[Message]) -> Counts:
        done = Counts()
        async with turns:
            for run in runs(part):
                answer = await patience.until_safe(partial(send, run))
                done += Counts(answer.sent, answer.owed)
        return done

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


def runs(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """One session's messages in runs of consecutive numbers, as the producer takes them."""
    start = 0
    for place, (before, after) in enumerate(pairwise(messages), start=1):
        if number_of(after).sequence != number_of(before).sequence + 1:
            yield messages[start:place]
            start = place
    yield messages[start:]


def message_of(row: Row, owner_level: int = 0) -> Message:
    """A row as the message it stands for; raises InvalidMessage naming what is null in it."""
    event = dict(zip(row.__fields__, row, strict=True))
    if missing := [name for name in REQUIRED if event[name] is None]:
        raise InvalidMessage(f"an event has no {', '.join(missing)}: {row}")
    return Message(
        id=event["id"],
        session=event["session"],
        type=event["type"],
        body=event["body"].encode(),
        number=Number(group=event["group"], level=owner_level, sequence=event["sequence"]),
        time=event["time"],
    )


def number_of(message: Message) -> Number:
    """The number every message of a feed carries."""
    if message.number is None:
        raise InvalidMessage(f"message {message.id!r} has no number")
    return message.number
