"""One task's rows through a producer: order, rate and failure, and a copy of the task beside it."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import Row

from shared.domain.errors import (
    CallerError,
    InvalidMessage,
    LockstepError,
    Misconfigured,
    OutcomeUnknown,
    Unavailable,
)
from shared.domain.message import Message, Number, derive_id
from spark.send.rows import (
    SESSIONS_AT_ONCE,
    BrokenSequence,
    RateLimiter,
    SendCounts,
    SendMessages,
    SendPolicy,
    SendRetry,
    build_message,
    get_number,
    send_rows,
)
from tests.crashes import rest
from tests.world import REGIONS, World


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
    rows: Sequence[Row], producer: Producer | SendMessages, rows_max: int = 10, **policy: Any
) -> SendCounts:
    send_messages = producer.send if isinstance(producer, Producer) else producer
    return await send_rows(rows, send_messages, SendPolicy(rows_max, **policy), lambda _: None)


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

    await send(rows, producer, gaps=True)

    assert producer.of("N14228") == [3, 4, 9, 11, 12]
    assert producer.calls == 3


async def test_disorder_is_refused_even_where_gaps_are_allowed() -> None:
    with pytest.raises(BrokenSequence, match="5 to 4"):
        await send([row("N14228", 5), row("N14228", 4)], Producer(), gaps=True)


async def test_a_write_s_owner_level_is_every_message_s() -> None:
    producer = Producer()

    await send([row("N14228", 0)], producer, owner_level=3)

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
        build_message(row("s", 0).asDict() | reserved)


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        ({"body": "{"}, "body is not JSON: .*: number 0 of session 's'"),
        ({"body": '{"a": NaN}'}, "NaN is no number in JSON"),
        ({"body": "plain text"}, "is not JSON"),
        ({"time": "yesterday"}, "time is not in ISO 8601: number 0 of session 's'"),
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
        await send(rows, fails_for_n24211, rows_max=2)

    assert producer.of("N14228") in ([], [0])


async def test_an_outage_shorter_than_the_retries_is_waited_for() -> None:
    clock, producer = Clock(), Producer()

    async def down_for_forty_seconds(messages: Sequence[Message]) -> SendCounts:
        if clock.now < 40:
            raise OutcomeUnknown("no region surely took the messages")
        return await producer.send(messages)

    rows = [row("N14228", 0), row("N14228", 1)]
    counts = await send(rows, down_for_forty_seconds, rows_max=1, retry=clock.retry)

    assert producer.of("N14228") == [0, 1]
    assert (counts.sent, counts.repeated) == (2, 1), "the first was sent again until it was taken"
    assert 40 <= clock.now < 46


@pytest.mark.parametrize(
    ("error", "earliest", "latest"),
    [
        (Unavailable("the journal is away"), 50, 60),
        # A person has to change something first.
        (Misconfigured("there is no queue 'inn'"), 0, 0),
    ],
)
async def test_an_outage_longer_than_the_retries_fails_the_task_and_a_misspelling_at_once(
    error: LockstepError, earliest: float, latest: float
) -> None:
    clock = Clock()

    async def down(messages: Sequence[Message]) -> SendCounts:
        raise error

    with pytest.raises(type(error), match=str(error)):
        await send([row("N14228", 0)], down, retry=clock.retry)

    assert earliest <= clock.now <= latest


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


@dataclass
class Clock:
    """A clock that only sleeping moves."""

    now: float = 0.0

    @property
    def retry(self) -> SendRetry:
        return SendRetry(60.0, self.read, self.sleep)

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


ACCOUNTS = {f"acc-{n}": [10 * n + k for k in range(1, 6)] for n in range(3)}


def account_rows() -> list[Row]:
    """Every amount of every account, the accounts taking turns."""
    return [
        Row(
            session=account,
            group="bank",
            sequence=number,
            type="account.add",
            body=f'{{"amount":{amounts[number]}}}',
            id=derive_id("bank", account, str(number)),
            time=None,
        )
        for number in range(5)
        for account, amounts in ACCOUNTS.items()
    ]


async def attempt(world: World, chance: random.Random, dies_after: int | None) -> None:
    """One attempt of the task, in a process of its own; it ends in the middle of a send."""
    producer = world.producer()
    left = dies_after

    async def send_or_die(messages: Sequence[Message]) -> SendCounts:
        nonlocal left
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
        if left is not None:
            left -= 1
            if left < 0:
                await producer.delivery.bus.send("east", "in", messages[:1])
                raise ConnectionResetError("the executor was lost")
        published = await producer.send(messages)
        return SendCounts(published.sent, published.pending)

    await send(account_rows(), send_or_die, rows_max=4)


async def consumed(world: World, chance: random.Random) -> None:
    """Both regions take what is in their queues, a session's messages in the queue's order."""
    queues: dict[tuple[str, str], list[Message]] = {}
    for region in REGIONS:
        for message in world.bus.messages(region, "in"):
            queues.setdefault((region, message.session), []).append(message)
    while queues:
        place = chance.choice(sorted(queues))
        worker = world.east if place[0] == "east" else world.west
        await worker.consumer.consume(queues[place].pop(0))
        if not queues[place]:
            del queues[place]


@pytest.mark.parametrize("seed", range(12))
async def test_effects_equal_the_source(seed: int) -> None:
    chance = random.Random(seed)
    world = World()

    deaths = (chance.randrange(9), chance.randrange(9), None)
    attempts = [attempt(world, chance, dies_after) for dies_after in deaths]
    ends = await asyncio.gather(*attempts, return_exceptions=True)
    await consumed(world, chance)
    await rest(world)

    assert [type(end) for end in ends] == [ConnectionResetError, ConnectionResetError, type(None)]
    assert {account: world.amounts(account) for account in ACCOUNTS} == ACCOUNTS
