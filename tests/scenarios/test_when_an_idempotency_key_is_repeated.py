"""A key comes again: within its time it is the same message, however many others came between."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest

from shared.domain.errors import CallerError, ContentConflict, LockstepError, TooLarge
from shared.domain.producer import HTTP_GROUP, REMEMBERED_MAX, Draft, ProducerOptions
from shared.domain.reports import TOMBSTONE_TYPE
from shared.engine.dispatch.deliver import PAUSE_SECONDS_MAX
from shared.engine.publish.publish import Producer
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, FaultPlan, ProcessKilled
from tests.world import REGIONS, World

SESSION = "acc-7"
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


def sent(world: World, region: str) -> list[str]:
    return [message.id for message in world.bus.messages(region, "in")]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("is_same_process", [True, False])
async def test_a_hundred_messages_later_it_is_still_known(
    world: World, *, is_same_process: bool
) -> None:
    first = world.producer()
    number = await accept(first, KEYED)
    for draft in others(100):
        await accept(first, draft)
    second = first if is_same_process else world.producer()

    assert await accept(second, KEYED) == number
    with pytest.raises(ContentConflict, match="key-1"):
        await accept(second, OTHER)

    assert [sent(world, region).count("key-1") for region in REGIONS] == [1, 1]
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


async def test_a_message_that_no_queue_took_is_not_called_sent_when_its_key_comes_again(
    world: World,
) -> None:
    for region in REGIONS:
        world.bus.largest[region, "in"] = 500
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
