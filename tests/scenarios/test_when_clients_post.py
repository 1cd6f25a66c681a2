"""Clients post over HTTP, several at once or one key again: a key is one message, one number."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest

from proof.simulation.world import virtual_time
from shared.domain.errors import CallerError, ContentConflict, LockstepError, TooLarge, Unavailable
from shared.domain.message import Message
from shared.domain.producer import HTTP_GROUP, REMEMBERED_MAX, Draft, ProducerOptions
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.engine.publish.ingest import TOGETHER_MAX, Ingest
from shared.engine.publish.publish import Producer
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, FaultPlan, ProcessKilled
from tests.loop_clock import LoopClock, in_world
from tests.world import REGIONS, World

# When several post to a session at once, what arrives during an operation shares the next one.
#
# Time is virtual here: a second passes only while everything waits.

WRITE_SECONDS = 0.13
SESSION = "acc-7"


def draft(number: int, amount: int | None = None, text: str = "") -> Draft:
    value = number if amount is None else amount
    return Draft(f"m-{number}", "account.add", f'{{"amount":{value},"text":"{text}"}}'.encode())


TWENTY = [draft(n) for n in range(20)]


@in_world
def far_away() -> World:
    """A world with a store each of whose writes takes 130 ms."""
    world = World(LoopClock())
    for name in ("save_ledger", "acknowledge"):
        setattr(world.journal, name, slow(getattr(world.journal, name)))
    return world


def slow[**P, T](call: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    async def wait_and_call(*args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(WRITE_SECONDS)
        return await call(*args, **kwargs)

    return wait_and_call


def begin(ingest: Ingest, drafts: Sequence[Draft]) -> list[asyncio.Task[Message]]:
    return [asyncio.create_task(ingest.take(SESSION, one)) for one in drafts]


async def results(tasks: Sequence[asyncio.Task[Message]]) -> list[Message | BaseException]:
    return await asyncio.gather(*tasks, return_exceptions=True)


def sequences(messages: Sequence[Message | BaseException]) -> list[int]:
    return [m.number.sequence for m in messages if isinstance(m, Message) and m.number]


def sent(world: World, region: str) -> list[tuple[int, bytes]]:
    """The numbers and bodies that lie in a region's queue, each once, in order."""
    found = {(m.number.sequence, m.body) for m in world.bus.messages(region, "in") if m.number}
    return sorted(found)


def bodies(drafts: Sequence[Draft]) -> list[tuple[int, bytes]]:
    """The same of drafts that are numbered in this order."""
    return [(n, one.body) for n, one in enumerate(drafts)]


@far_away
async def test_what_arrives_during_an_operation_shares_the_next_one(world: World) -> None:
    ingest = Ingest(world.producer())
    messages = await results(begin(ingest, TWENTY))

    assert sequences(messages) == list(range(20))
    # The first one alone, then all others.
    assert world.journal.fault_plan.calls["save_ledger"] == 2
    assert virtual_time.now() <= 2 * 2 * WRITE_SECONDS + 0.001
    assert sent(world, "east") == sent(world, "west") == bodies(TWENTY)
    assert not ingest.arrivals


@far_away
async def test_what_comes_alone_waits_for_nobody(world: World) -> None:
    ingest = Ingest(world.producer())
    for one in TWENTY[:5]:
        await ingest.take(SESSION, one)

    assert virtual_time.now() <= 5 * 2 * WRITE_SECONDS + 0.001
    assert world.journal.fault_plan.calls["save_ledger"] == 5


@far_away
async def test_more_than_an_operation_takes_go_with_the_next_in_order(world: World) -> None:
    many = [draft(n, text="x" * 10_000) for n in range(2 * TOGETHER_MAX)]
    messages = await results(begin(Ingest(world.producer()), many))

    assert sequences(messages) == list(range(2 * TOGETHER_MAX))
    assert world.journal.fault_plan.calls["save_ledger"] == 7
    assert sent(world, "west") == bodies(many)


@far_away
async def test_an_id_with_other_content_is_refused_alone_and_keeps_nobody_up(world: World) -> None:
    ingest = Ingest(world.producer())
    await ingest.take(SESSION, TWENTY[3])
    conflicting = draft(3, amount=99)
    messages = await results(begin(ingest, [*TWENTY[:3], conflicting, *TWENTY[4:]]))

    others = {n: type(m) for n, m in enumerate(messages) if not isinstance(m, Message)}
    assert others == {3: ContentConflict}
    assert sequences(messages) == list(range(1, 20))
    assert sent(world, "east") == bodies([TWENTY[3], *TWENTY[:3], *TWENTY[4:]])


@far_away
async def test_the_same_id_posted_twice_at_once_has_one_number(world: World) -> None:
    messages = await results(begin(Ingest(world.producer()), [TWENTY[0], TWENTY[1], TWENTY[0]]))

    assert sequences(messages) == [0, 1, 0]
    assert len(sent(world, "west")) == 2


@far_away
async def test_when_the_store_refuses_all_learn_it_and_retries_find_numbers(world: World) -> None:
    ingest = Ingest(world.producer())
    # The operation of the first one, and that of all others.
    world.journal.fault_plan.plan("save_ledger", CallFault.REFUSED, CallFault.REFUSED)
    refused = await results(begin(ingest, TWENTY))
    assert [type(one) for one in refused] == [Unavailable] * 20

    again = await results(begin(ingest, TWENTY))
    assert sequences(again) == list(range(20))
    assert sent(world, "east") == bodies(TWENTY)
    assert not ingest.arrivals


@far_away
async def test_when_the_call_that_publishes_is_cancelled_another_one_goes_on(world: World) -> None:
    ingest = Ingest(world.producer())
    calls = begin(ingest, TWENTY)
    # The ledger is written, and the copies are not sent or not struck off yet.
    for moment in (WRITE_SECONDS / 2, WRITE_SECONDS, WRITE_SECONDS / 4):
        await asyncio.sleep(moment)
        next(call for call in calls if not call.done()).cancel()
    messages = await results(calls)

    lost = sum(isinstance(one, asyncio.CancelledError) for one in messages)
    assert lost <= 3
    assert len(sequences(messages)) == 20 - lost
    # No number is missing, whoever was cancelled, and each has one content in both regions.
    numbered = sent(world, "east")
    assert [number for number, _ in numbered] == list(range(len(numbered)))
    assert len(numbered) >= 20 - lost
    assert numbered == sent(world, "west")
    assert not ingest.arrivals


# When an idempotency key is repeated within its time, it is the same message.

HTTP = ProducerOptions(HTTP_GROUP, is_ingest=True)
DAY = 24 * 3600
KEYED = Draft("key-1", "account.add", b'{"amount":1}')
OTHER = replace(KEYED, body=b'{"amount":2}')
FAULTS = (*CALL_ERRORS, CallFault.KILLED_BEFORE, CallFault.KILLED_AFTER)


def others(count: int) -> list[Draft]:
    return [Draft(f"other-{n}", "account.add", b"{}") for n in range(count)]


async def accept(producer: Producer, draft: Draft) -> int | None:
    """Publish as the HTTP route does; the number is returned."""
    published = await producer.publish(SESSION, [draft], HTTP, keep_seconds=DAY)
    (message,) = published.messages
    return message.number.sequence if message.number else None


@pytest.mark.parametrize("is_same_process", [True, False])
async def test_a_hundred_messages_later_it_is_known(world: World, *, is_same_process: bool) -> None:
    first = world.producer()
    number = await accept(first, KEYED)
    for draft in others(100):
        await accept(first, draft)
    second = first if is_same_process else world.producer()

    assert await accept(second, KEYED) == number
    with pytest.raises(ContentConflict, match="key-1"):
        await accept(second, OTHER)

    for region in REGIONS:
        assert [one.id for one in world.bus.messages(region, "in")].count("key-1") == 1
    assert await accept(second, replace(KEYED, id="key-2")) == 101


@pytest.mark.parametrize(("after", "is_known"), [(DAY - 1, True), (DAY, False)])
async def test_it_is_known_for_its_time(world: World, after: float, *, is_known: bool) -> None:
    await accept(world.producer(), KEYED)
    for draft in others(REMEMBERED_MAX):
        await accept(world.producer(), draft)
    world.clock.seconds += after

    number = await accept(world.producer(), KEYED)

    assert (number == 0) is is_known


async def test_two_groups_and_two_sessions_may_use_one_key(world: World) -> None:
    await accept(world.producer(), KEYED)
    bank = ProducerOptions("bank")
    producer = world.producer()

    for session, options in ((SESSION, bank), ("acc-8", HTTP)):
        published = await producer.publish(session, [OTHER], options, keep_seconds=DAY)
        assert published.messages[0].body == OTHER.body


async def test_nothing_more_is_read_for_a_new_key_and_the_ledger_stays_short(world: World) -> None:
    producer = world.producer()
    for draft in others(5):
        await accept(producer, draft)
    world.journal.fault_plan.calls.clear()

    await accept(producer, KEYED)

    assert dict(world.journal.fault_plan.calls) == {"save_ledger": 1, "acknowledge": 1}
    stored = await world.journal.ledger(SESSION, "http")
    assert stored
    assert [bound.id for bound in stored.ledger.remembered] == ["key-1"]


async def test_what_an_older_release_numbered_a_moment_ago_is_still_known(world: World) -> None:
    older = world.producer()
    for draft in (*others(REMEMBERED_MAX - 1), KEYED):
        await older.publish(SESSION, [draft], HTTP)

    newer = world.producer()
    for n in range(REMEMBERED_MAX // 2 - 1):
        await accept(newer, Draft(f"newer-{n}", "account.add", b"{}"))

    assert await accept(newer, KEYED) == REMEMBERED_MAX - 1


async def test_a_key_whose_message_no_queue_took_is_not_called_sent(world: World) -> None:
    world.bus.largest = {(region, "in"): 500 for region in REGIONS}
    huge = replace(KEYED, body=b'"' + b"x" * 1_000 + b'"')

    for _ in range(2):
        with pytest.raises(TooLarge, match="key-1"):
            await accept(world.producer(), huge)
        for draft in others(2):
            await accept(world.producer(), draft)

    types = [m.type for m in world.bus.messages("east", "in")]
    assert types.count(TOMBSTONE_TYPE) == 2


async def insist(world: World, producer: Producer, draft: Draft) -> int | None:
    """Send a key again until it is accepted, as clients do; a process that died is replaced."""
    for _ in range(6):
        try:
            return await accept(producer, draft)
        except CallerError:
            raise
        except (LockstepError, ProcessKilled):
            producer = world.producer()
            world.clock.seconds += PAUSE_SECONDS_MAX
    return pytest.fail("never accepted")


async def repeat(world: World) -> Sequence[int | None]:
    """A key, other keys of another process, and the first key again, twice."""
    first, second = world.producer(), world.producer()
    numbers = [await insist(world, first, KEYED)]
    numbers += [await insist(world, second, draft) for draft in others(2)]
    numbers.append(await insist(world, first, KEYED))
    with pytest.raises(ContentConflict):
        await insist(world, first, OTHER)
    numbers.append(await insist(world, second, KEYED))
    return numbers


async def test_every_call_goes_wrong_and_a_key_is_one_message_all_the_same() -> None:
    quiet = World()
    quiet.journal.fault_plan = quiet.bus.fault_plan = FaultPlan()
    assert await repeat(quiet) == [0, 1, 2, 0, 0]
    calls = len(quiet.journal.fault_plan.made)

    for at, fault in product(range(calls), FAULTS):
        world = World()
        world.journal.fault_plan = world.bus.fault_plan = plan = FaultPlan({at: fault})
        assert await repeat(world) == [0, 1, 2, 0, 0], plan
        plan.is_over = True
        for region in REGIONS:
            world.clock.seconds += 60
            await world.worker(region).recovery.sweep()
        for region in REGIONS:
            copies = {(m.number, m.id, m.body) for m in world.bus.messages(region, "in")}
            assert [one for _, one, _ in sorted(copies)] == ["key-1", "other-0", "other-1"], plan
