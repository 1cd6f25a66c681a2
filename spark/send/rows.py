"""Send one task's rows through the producer: many sessions side by side, each in its order."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import batched, pairwise
from typing import Any

from pyspark.sql import Row

from shared.domain.errors import InvalidMessage, Misconfigured, OutcomeUnknown, Unavailable
from shared.domain.message import Message, Number, refuse_reserved
from shared.domain.producer import ProducerOptions
from shared.domain.wire import BATCH_BYTES_MAX, wire_bytes
from spark.schemas import EVENTS

# To how many sessions a task sends at the same time. Small ones share batches (gathering.py); of
# large ones there are so few that the last waits for some batches only, also in a far region.
SESSIONS_AT_ONCE = 128
SESSIONS_AT_ONCE_MIN = 4
BYTES_AT_ONCE = 4 * BATCH_BYTES_MAX
# What an event must have; the time may be left out.
REQUIRED = tuple(name for name in EVENTS.names if name != "time")
# With a rate, a buffer holds no more than this share of a second: four small bursts a second
# instead of one large one.
BURST_SECONDS = 0.25
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.5, 5.0
PATIENCE_DEFAULT_SECONDS = 60.0


class BrokenSequence(InvalidMessage):
    """A session's numbers skip or run backwards within a partition. Nothing more was sent."""


@dataclass(frozen=True, slots=True)
class SendCounts:
    """Messages that are in at least one region, and copies still pending for another region.

    `repeated` messages of them were sent again in the same try of their task, as no region had
    surely taken them, and for `busy_seconds` batches waited because a namespace was busy.
    """

    sent: int = 0
    pending: int = 0
    repeated: int = 0
    busy_seconds: float = 0.0

    def __add__(self, other: "SendCounts") -> "SendCounts":
        return SendCounts(
            self.sent + other.sent,
            self.pending + other.pending,
            self.repeated + other.repeated,
            self.busy_seconds + other.busy_seconds,
        )


type SendMessages = Callable[[Sequence[Message]], Awaitable[SendCounts]]


@dataclass(slots=True)
class RateLimiter:
    """Lets `per_second` messages through, or all if that is None; lost time is not made up for."""

    per_second: float | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    free_at: float = 0.0

    def limit_burst(self, rows_max: int) -> int:
        if self.per_second is None:
            return rows_max
        return max(1, min(rows_max, round(self.per_second * BURST_SECONDS)))

    async def acquire(self, count: int) -> None:
        if self.per_second is None:
            return
        now = self.clock()
        if now < self.free_at:
            await self.sleep(self.free_at - now)
        self.free_at = max(now, self.free_at) + count / self.per_second


@dataclass(frozen=True, slots=True)
class SendRetry:
    """Repeats the same messages, without further effect, while no region surely takes them."""

    seconds: float = 0.0
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def run(self, send: SendMessages, messages: Sequence[Message]) -> SendCounts:
        """Send until it is taken; raises what the last try did, and Misconfigured at once."""
        ends_at = self.clock() + self.seconds
        wait = FIRST_RETRY_SECONDS
        repeated = 0
        while True:
            try:
                return await send(messages) + SendCounts(repeated=repeated)
            except Misconfigured:
                # Every try would be refused alike until a person changes something.
                raise
            except (OutcomeUnknown, Unavailable):
                if self.clock() + wait > ends_at:
                    raise
            await self.sleep(wait)
            wait = min(2 * wait, LONGEST_RETRY_SECONDS)
            repeated = len(messages)


@dataclass(slots=True)
class SequenceCheck:
    """Refuses what does not follow a session's last number; with `gaps` it need only be higher."""

    gaps: bool = False
    last: dict[tuple[str, str], int] = field(default_factory=dict)

    def require_next(self, messages: Iterable[Message]) -> None:
        """Raise BrokenSequence unless each message continues its session; the first may be any."""
        for message in messages:
            number = get_number(message)
            key = (message.session, number.group)
            before = self.last.get(key)
            after = number.sequence
            if before is not None and not (after > before if self.gaps else after == before + 1):
                raise BrokenSequence(
                    f"session {message.session!r} of group {number.group!r} goes from number "
                    f"{before} to {after} within a partition; write it repartitioned by "
                    "session and sorted by sequence within partitions"
                )
            self.last[key] = after


@dataclass(frozen=True, slots=True)
class SendPolicy:
    """The way a task sends. `rows_max` is how many rows it holds at once."""

    rows_max: int
    rate: RateLimiter = field(default_factory=RateLimiter)
    owner_level: int = 0
    gaps: bool = False
    retry: SendRetry = field(default_factory=SendRetry)


async def send_rows(
    rows: Iterable[Row],
    send: SendMessages,
    policy: SendPolicy,
    report: Callable[[int], None],
    check: SequenceCheck | None = None,
) -> SendCounts:
    """Send rows (schemas.EVENTS) buffer by buffer; `report` is told after each how many were sent.

    A whole buffer is checked before any of it is sent, and all of it is sent before the next one
    begins, so a session's messages never overtake each other. `check` knows afterwards which
    sessions there were. Raises InvalidMessage for a row that is no event, BrokenSequence for a gap
    or disorder, and whatever `send` raises.
    """
    total, check = SendCounts(), check or SequenceCheck(policy.gaps)
    for buffer in batched(rows, policy.rate.limit_burst(policy.rows_max), strict=False):
        messages = build_messages(buffer, policy.owner_level)
        check.require_next(messages)
        await policy.rate.acquire(len(messages))
        total += await send_sessions(messages, send, policy.retry)
        report(total.sent)
    return total


async def send_sessions(
    messages: Sequence[Message], send: SendMessages, retry: SendRetry
) -> SendCounts:
    """Send the messages of each session, several sessions at once; the first failure ends all."""
    slots = asyncio.Semaphore(limit_sessions(messages))

    async def send_session(part: Sequence[Message]) -> SendCounts:
        done = SendCounts()
        async with slots:
            for run in split_into_runs(part):
                done += await retry.run(send, run)
        return done

    sessions: dict[tuple[str, str], list[Message]] = defaultdict(list)
    for message in messages:
        sessions[message.session, get_number(message).group].append(message)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(send_session(part)) for part in sessions.values()]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return sum((task.result() for task in tasks), SendCounts())


def limit_sessions(messages: Sequence[Message]) -> int:
    """Return to how many sessions of a buffer to send at once, by the size of an average one."""
    sessions = len({message.session for message in messages})
    size = sum(map(wire_bytes, messages)) / max(sessions, 1)
    return max(SESSIONS_AT_ONCE_MIN, min(SESSIONS_AT_ONCE, int(BYTES_AT_ONCE / max(size, 1))))


def split_into_runs(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """One session's messages in runs of consecutive numbers, as the producer takes them."""
    start = 0
    for place, (before, after) in enumerate(pairwise(messages), start=1):
        if get_number(after).sequence != get_number(before).sequence + 1:
            yield messages[start:place]
            start = place
    yield messages[start:]


def build_messages(rows: Iterable[Row], owner_level: int = 0) -> list[Message]:
    """The messages of rows; raises what `build_message` does, naming the row."""
    messages = []
    for row in rows:
        event = dict(zip(row.__fields__, row, strict=True))
        try:
            messages.append(build_message(event, owner_level))
        except InvalidMessage as error:
            # Not the whole row: errors are logged, and bodies are not for logs.
            place = f"number {event['sequence']} of session {event['session']!r}"
            raise type(error)(f"{error}: {place}") from None
    return messages


def build_message(event: Mapping[str, Any], owner_level: int = 0) -> Message:
    """The message of an event, whose fields are those of schemas.EVENTS.

    Raises InvalidMessage naming the columns that are null, or if the body is not JSON or the time
    not ISO 8601; NotAllowed or InvalidOptions for a session, a type or a group that is the app's.
    """
    if missing := [name for name in REQUIRED if event[name] is None]:
        raise InvalidMessage(f"an event has no {', '.join(missing)}")
    refuse_reserved(event["session"], event["type"])
    try:
        json.loads(event["body"], parse_constant=refuse_constant)
    except ValueError as error:
        raise InvalidMessage(f"the body is not JSON: {error}") from None
    try:
        if event["time"] is not None:
            datetime.fromisoformat(event["time"])
    except ValueError:
        raise InvalidMessage("the time is not in ISO 8601") from None
    group = ProducerOptions(event["group"], owner_level).producer_group_id
    return Message(
        id=event["id"],
        session=event["session"],
        type=event["type"],
        body=event["body"].encode(),
        number=Number(group=group, level=owner_level, sequence=event["sequence"]),
        time=event["time"],
    )


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


def get_number(message: Message) -> Number:
    """The number of a message of a feed; raises InvalidMessage if it has none."""
    if message.number is None:
        raise InvalidMessage(f"message {message.id!r} has no number")
    return message.number
