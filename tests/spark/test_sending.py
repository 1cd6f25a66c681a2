"""One task's rows through a producer that only remembers: order, rate and failure."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from pyspark.sql import Row

from shared.domain.errors import (
    CallerError,
    InvalidMessage,
    Misconfigured,
    OutcomeUnknown,
    Unavailable,
)
from shared.domain.message import Message, Number
from spark.send.rows import (
    SESSIONS_AT_ONCE,
    BrokenSequence,
    RateLimiter,
    SendCounts,
    SendPolicy,
    SendRetry,
    build_message,
    get_number,
    send_rows,
)

UNLIMITED = RateLimiter()


def ignore_counts(sent: int) -> None:
    """Nobody listens."""


@dataclass(slots=True)
class Producer:
    """Remembers what it was given, and how many sessions it was sent at the same time."""

    messages: list[Message] = field(default_factory=list)
    calls: int = 0
    at_once: int = 0
    at_once_max: int = 0
    sessions: set[tuple[str, str]] = field(default_factory=set)

    async def send(self, messages: Sequence[Message]) -> SendCounts:
        session = (messages[0].session, get_number(messages[0]).group)
        assert session not in self.sessions, "a session was sent twice at the same time"
        self.calls += 1
        self.sessions.add(session)
        self.at_once_max = max(self.at_once_max, len(self.sessions))
        # The later a session's turn, the sooner it ends: nothing may rely on the order of answers.
        for _ in range(SESSIONS_AT_ONCE * 2 - self.calls % SESSIONS_AT_ONCE):
            await asyncio.sleep(0)
        self.messages.extend(messages)
        self.sessions.remove(session)
        return SendCounts(sent=len(messages), pending=1)

    def of(self, session: str) -> list[int]:
        """The numbers of a session, as they were sent."""
        mine = [message for message in self.messages if message.session == session]
        return [get_number(message).sequence for message in mine]


def row(session: str, sequence: int, **changes: object) -> Row:
    """An event row."""
    cells = {
        "session": session,
        "group": "flights",
        "sequence": sequence,
        "type": "flight.status",
        "body": f'{{"flight":"UA{sequence}"}}',
        "id": f"{session}-{sequence}",
        "time": "2013-01-01T05:17:00",
    }
    return Row(**(cells | changes))


async def send(
    rows: Sequence[Row], producer: Producer, *, rows_max: int = 10, rate: RateLimiter = UNLIMITED
) -> SendCounts:
    return await send_rows(rows, producer.send, SendPolicy(rows_max, rate), ignore_counts)


async def test_a_row_becomes_the_message_it_stands_for() -> None:
    producer = Producer()

    await send([row("N14228", 7, body='{"city":"Zürich"}')], producer)

    assert producer.messages == [
        Message(
            id="N14228-7",
            session="N14228",
            type="flight.status",
            body='{"city":"Zürich"}'.encode(),
            number=Number("flights", 0, 7),
            time="2013-01-01T05:17:00",
        )
    ]


async def test_sessions_are_sent_at_once_but_each_in_its_order() -> None:
    producer = Producer()
    fleet = [f"N{number}" for number in range(SESSIONS_AT_ONCE + 10)]
    rows = [row(session, sequence) for sequence in range(6) for session in fleet]

    counts = await send(rows, producer, rows_max=200)

    assert counts == SendCounts(sent=len(rows), pending=producer.calls)
    assert all(producer.of(session) == list(range(6)) for session in fleet)
    assert producer.at_once_max == SESSIONS_AT_ONCE


async def test_counts_are_reported_after_every_buffer() -> None:
    reported: list[int] = []
    rows = [row("N14228", sequence) for sequence in range(5)]

    await send_rows(rows, Producer().send, SendPolicy(2), reported.append)

    assert reported == [2, 4, 5]


async def test_a_session_may_go_on_from_an_earlier_write() -> None:
    producer = Producer()

    await send([row("N14228", 41), row("N14228", 42)], producer)

    assert producer.of("N14228") == [41, 42]


async def test_two_groups_of_one_session_are_numbered_apart() -> None:
    producer = Producer()

    await send([row("N14228", 0), row("N14228", 0, group="repairs", id="r0")], producer)

    assert producer.calls == 2


@pytest.mark.parametrize("numbers", [(0, 2), (0, 1, 1), (1, 0)], ids=["gap", "repeat", "backwards"])
async def test_a_gap_or_disorder_is_refused_before_its_buffer_is_sent(numbers: list[int]) -> None:
    producer = Producer()
    rows = [row("N24211", 0), *(row("N14228", number) for number in numbers)]

    with pytest.raises(BrokenSequence, match=f"'N14228'.*{numbers[-2]} to {numbers[-1]}"):
        await send(rows, producer)

    assert producer.messages == []


async def test_where_gaps_are_allowed_each_run_of_numbers_is_one_operation_in_order() -> None:
    producer = Producer()
    rows = [row("N14228", number) for number in (3, 4, 9, 11, 12)]

    await send_rows(rows, producer.send, SendPolicy(10, gaps=True), ignore_counts)

    assert producer.of("N14228") == [3, 4, 9, 11, 12]
    assert producer.calls == 3


async def test_disorder_is_refused_even_where_gaps_are_allowed() -> None:
    with pytest.raises(BrokenSequence, match="5 to 4"):
        await send_rows(
            [row("N14228", 5), row("N14228", 4)],
            Producer().send,
            SendPolicy(10, gaps=True),
            ignore_counts,
        )


async def test_a_write_s_owner_level_is_every_message_s() -> None:
    producer = Producer()

    await send_rows([row("N14228", 0)], producer.send, SendPolicy(10, owner_level=3), ignore_counts)

    assert [get_number(message).level for message in producer.messages] == [3]


async def test_a_gap_between_two_buffers_is_refused() -> None:
    producer = Producer()

    with pytest.raises(BrokenSequence):
        await send([row("N14228", 0), row("N14228", 2)], producer, rows_max=1)

    assert producer.of("N14228") == [0]


async def test_a_row_with_a_null_is_refused_by_the_column_s_name() -> None:
    with pytest.raises(InvalidMessage, match="no body, id:"):
        await send([row("N14228", 0, body=None, id=None, time=None)], Producer())


@pytest.mark.parametrize(
    "reserved",
    [
        {"session": "saga:o-1"},
        {"type": "lockstep.void"},
        {"group": "http"},
        {"group": "session:s"},
        {"group": "saga:o-1"},
        {"group": "$arrivals"},
    ],
)
async def test_a_row_says_nothing_that_only_the_app_may_say(reserved: dict[str, str]) -> None:
    with pytest.raises(CallerError, match=r"saga's|the app"):
        build_message(Row(**(row("s", 0).asDict() | reserved)))


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        ({"body": "{"}, "body of number 0 of session 's' is not JSON"),
        ({"body": '{"a": NaN}'}, "NaN is no number in JSON"),
        ({"body": "plain text"}, "is not JSON"),
        ({"time": "yesterday"}, "time of number 0 of session 's' is not in ISO 8601"),
    ],
)
async def test_a_row_that_no_handler_could_read_is_refused_before_its_buffer_is_sent(
    cells: dict[str, str], complaint: str
) -> None:
    producer = Producer()
    with pytest.raises(InvalidMessage, match=complaint):
        await send([row("a", 0), row("s", 0, **cells)], producer)

    assert producer.messages == []


async def test_when_no_region_takes_a_session_the_task_fails_and_nothing_later_is_sent() -> None:
    producer = Producer()

    async def fails_for_n24211(messages: Sequence[Message]) -> SendCounts:
        if messages[0].session == "N24211":
            raise OutcomeUnknown("no region surely took the messages")
        return await producer.send(messages)

    rows = [row("N14228", 0), row("N24211", 0), row("N14228", 1), row("N14228", 2)]
    with pytest.raises(OutcomeUnknown, match="no region"):
        await send_rows(rows, fails_for_n24211, SendPolicy(2), ignore_counts)

    assert producer.of("N14228") in ([], [0])


async def test_an_outage_shorter_than_the_retries_is_waited_for() -> None:
    clock, producer = Clock(), Producer()
    retry = SendRetry(60.0, clock.read, clock.sleep)

    async def down_for_forty_seconds(messages: Sequence[Message]) -> SendCounts:
        if clock.now < 40:
            raise OutcomeUnknown("no region surely took the messages")
        return await producer.send(messages)

    rows = [row("N14228", 0), row("N14228", 1)]
    counts = await send_rows(
        rows, down_for_forty_seconds, SendPolicy(1, retry=retry), ignore_counts
    )

    assert producer.of("N14228") == [0, 1]
    assert counts.sent == 2
    assert 40 <= clock.now < 46


async def test_an_outage_longer_than_the_retries_fails_the_task() -> None:
    clock = Clock()
    retry = SendRetry(60.0, clock.read, clock.sleep)

    async def down(messages: Sequence[Message]) -> SendCounts:
        raise Unavailable("the journal is away")

    with pytest.raises(Unavailable):
        await send_rows([row("N14228", 0)], down, SendPolicy(1, retry=retry), ignore_counts)

    assert 50 < clock.now <= 60


async def test_what_a_person_has_to_change_fails_the_task_at_once() -> None:
    clock = Clock()
    retry = SendRetry(60.0, clock.read, clock.sleep)

    async def misspelt(messages: Sequence[Message]) -> SendCounts:
        raise Misconfigured("there is no queue 'inn'")

    with pytest.raises(Misconfigured, match="'inn'"):
        await send_rows([row("N14228", 0)], misspelt, SendPolicy(1, retry=retry), ignore_counts)

    assert clock.now == 0


async def test_the_rate_is_kept_in_small_even_bursts() -> None:
    clock = Clock()
    producer = Producer()
    rows = [row("N14228", sequence) for sequence in range(100)]

    await send(rows, producer, rows_max=500, rate=RateLimiter(40.0, clock.read, clock.sleep))

    assert producer.calls == 10
    assert clock.now == pytest.approx(100 / 40 - 0.25)


async def test_time_lost_in_a_stall_is_not_made_up_for() -> None:
    clock = Clock()
    limiter = RateLimiter(10.0, clock.read, clock.sleep)

    await limiter.acquire(10)
    clock.now = 60.0
    await limiter.acquire(10)
    await limiter.acquire(10)

    assert clock.now == pytest.approx(61.0)


@dataclass(slots=True)
class Clock:
    """A clock that only sleeping moves."""

    now: float = 0.0

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
