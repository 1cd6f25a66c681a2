"""Of a session that has ended nothing is left in time, and nothing of it acts in another one."""

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from shared.domain.errors import LockstepError, SessionEnded, Unavailable
from shared.domain.handler import Context, Handled, Handlers
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.wire import to_properties
from shared.engine.consume.outcomes import AlreadyDone, Expired, Refused
from shared.engine.operate.compact import REMOVED_AT_ONCE
from shared.engine.publish.publish import Producer
from shared.engine.worker import Policy
from shared.ports import DeadLetter
from shared.storage.journal import REGIONS_SESSION
from shared.testkit.given import SENT_AT
from shared.testkit.injected_faults import PASSING_FAULTS, CallFault, ProcessKilled
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_store import EPOCH_SECONDS
from tests.docs.pages import page
from tests.mutants.mutant import ROOT
from tests.world import (
    REGIONS,
    Account,
    Amount,
    World,
    booked,
    in_place_of,
    message,
    require,
    take,
)

DAY = 24 * 3600.0
# As docs/limits.md says: the retention until the ledgers are closed, and as long as a queue keeps
# copies, by the looks that come once in each retention.
REMOVED_DAYS = 21
END = ResolutionRequest(ResolutionAction.END, "Ada", "the account was closed")
handlers = Handlers()


@handlers.register("account.add", state=Account, body=Amount)
def add(account: Account, body: Amount, _: Context) -> Account:
    """Book an amount."""
    return booked(account, body)


@handlers.register("account.close", state=Account, body=Amount)
def close(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Book the last amount of an account."""
    return Handled(booked(account, body), ends=True)


@handlers.register("account.visit", state=Account, body=Amount, ends_after=timedelta(days=30))
def visit(account: Account, body: Amount, _: Context) -> Account:
    """Book the amount of somebody who may never come again."""
    return booked(account, body)


@pytest.fixture
def world() -> World:
    return World(handlers=handlers)


def draft(key: str, amount: int = 1, kind: str = "account.add") -> Draft:
    return Draft(key, kind, f'{{"amount":{amount}}}'.encode())


async def send(world: World, *drafts: Draft, session: str = "acc-7") -> list[Message]:
    """What ingest takes one after another, once both regions have processed it."""
    sent = [await world.east.ingest.take(session, one) for one in drafts]
    for worker in (world.east, world.west):
        await take(worker, *sent)
    return sent


async def pass_days(world: World, days: int) -> None:
    """Let both regions compact each day."""
    for _ in range(days):
        world.clock.seconds += DAY + 1
        for region in REGIONS:
            await getattr(world, region).compactor.compact()


def kept(world: World, session: str = "acc-7") -> list[str]:
    """The ids of all that the store still has of a session."""
    store = world.journal.store
    return [one for one in store.partitions[session] if store.read(session, one)]


async def test_nothing_is_left_after_window_and_retention(world: World) -> None:
    await send(world, draft("first"), draft("last", 2, "account.close"))

    await pass_days(world, REMOVED_DAYS - 1)
    assert len(kept(world)) == 3
    await pass_days(world, 1)

    assert kept(world) == []
    # Nobody looks for it any more.
    world.journal.fault_plan.calls.clear()
    await world.east.compactor.compact()
    assert dict(world.journal.fault_plan.calls) == {"sessions": 2}


async def test_when_the_session_is_named_as_the_list_of_regions_the_list_and_beacons_stay(
    world: World,
) -> None:
    for region in REGIONS:
        await world.journal.light_beacon(region)
    await send(world, draft("last", 2, "account.close"), session=REGIONS_SESSION)
    assert len(kept(world, REGIONS_SESSION)) > 3

    await pass_days(world, REMOVED_DAYS)

    assert kept(world, REGIONS_SESSION) == ["beacon-east", "beacon-west", "regions"]


async def test_when_the_name_is_used_again_it_is_another_session(world: World) -> None:
    (old,) = await send(world, draft("only", 5, "account.close"))
    # These workers and this ledger remember the session for as long as they live.
    await pass_days(world, REMOVED_DAYS + 1)

    new = await send(world, draft("again", 7), draft("more", 8))

    assert [one.number for one in new][:1] == [old.number]
    assert world.amounts() == [7, 8]
    assert world.reports() == []


async def test_when_the_same_content_comes_for_the_next_session_it_is_no_copy(
    world: World,
) -> None:
    await send(world, draft("only", 5, "account.close"))
    await pass_days(world, REMOVED_DAYS + 1)

    await send(world, draft("once more", 5), draft("last", 6, "account.close"))

    assert world.amounts() == [5, 6]


async def test_when_silence_ends_a_session_nothing_is_left_either(world: World) -> None:
    await send(world, draft("here", 5, "account.visit"), draft("there", 6))

    await pass_days(world, 30)
    assert not require(world.journal.newest("acc-7")).is_ended
    await pass_days(world, 7)
    ended = require(world.journal.newest("acc-7"))
    assert ended.is_ended
    assert "nothing came for 3" in require(ended.reason)
    await pass_days(world, REMOVED_DAYS + 1)

    assert kept(world) == []


async def test_when_many_entries_stay_for_the_state_they_go_as_well() -> None:
    world = World()
    hints = [draft(f"hint {n}", n, "account.hint") for n in range(REMOVED_AT_ONCE + 10)]
    await send(world, draft("first", 5), *hints)
    for worker in (world.east, world.west):
        await worker.recovery.consumer.dispatcher.acknowledgements.record_session("acc-7")
    await world.east.resolver.resolve("acc-7", END)

    await pass_days(world, REMOVED_DAYS - 1)
    assert len(world.documents("entry")) == len(hints) + 2
    await pass_days(world, 8)

    assert kept(world) == []


async def test_when_something_comes_before_silence_ends_a_session_it_goes_on(
    world: World,
) -> None:
    for number in range(4):
        await send(world, draft(str(number), number, "account.visit"))
        await pass_days(world, 25)

    assert world.amounts() == [0, 1, 2, 3]
    assert not require(world.journal.newest("acc-7")).is_ended


async def test_when_something_waits_silence_ends_nothing(world: World) -> None:
    await take(world.east, message(0, kind="account.visit"), message(2, kind="account.visit"))

    await pass_days(world, 60)

    assert not require(world.journal.newest("acc-7")).is_ended
    assert len(world.documents("parked")) == 1


async def test_when_something_late_comes_it_is_refused_and_the_time_begins_anew(
    world: World,
) -> None:
    await send(world, draft("last", 1, "account.close"))
    await pass_days(world, 6)
    plain = replace(message(9), number=None, time=at_day(6))
    assert isinstance(await world.west.consumer.consume(plain), Refused)

    # As long as nobody has closed what came too late, it stays.
    await pass_days(world, 40)
    assert '{"amount":10}' in [e.get("message", {}).get("body") for e in world.entries()]
    closed = ResolutionRequest(ResolutionAction.CLOSE, "Ada", "sent elsewhere", at=1)
    await world.east.recovery.consumer.dispatcher.acknowledgements.record_session("acc-7")
    await world.east.resolver.resolve("acc-7", closed)
    await pass_days(world, 14)
    assert kept(world)
    await pass_days(world, REMOVED_DAYS)

    assert kept(world) == []


async def test_when_a_region_misses_a_copy_the_session_stays(world: World) -> None:
    with world.without("west"):
        sent = await world.east.ingest.take("acc-7", draft("last", 1, "account.close"))
        await take(world.east, sent)
        await pass_days(world, 60)
        assert len(world.documents("pending")) == 1

    world.clock.seconds += 3600
    await world.west.recovery.sweep()
    (copy,) = world.bus.messages("west", "in")
    assert await world.west.consumer.consume(copy) == AlreadyDone()
    # From now on that copy may lie in a queue for as long as any other.
    await pass_days(world, 14)
    assert kept(world)
    await pass_days(world, REMOVED_DAYS - 13)

    assert kept(world) == []


async def test_when_a_number_has_not_come_the_session_stays(world: World) -> None:
    await send(world, draft("last", 1, "account.close"))
    # Numbered before the ledger was told, and still under way.
    ledger = world.documents("ledger")[0]
    world.journal.store.put("acc-7", ledger | {"next": 2})

    await pass_days(world, 60)

    assert require(world.journal.newest("acc-7")).is_ended


async def test_when_somebody_numbers_without_a_ledger_the_newest_entry_stays(
    world: World,
) -> None:
    await take(world.east, message(0), message(1, kind="account.close"))

    await pass_days(world, 60)

    assert sorted(kept(world)) == ["000000000001", "genesis"]
    # It costs nothing more, and still tells copies from what is new.
    world.journal.fault_plan.calls.clear()
    await world.east.compactor.compact()
    assert dict(world.journal.fault_plan.calls) == {"sessions": 2}
    assert await world.west.consumer.consume(message(0)) == AlreadyDone()
    assert isinstance(await world.west.consumer.consume(message(2)), Refused)


def faults() -> Iterator[tuple[str, CallFault]]:
    """Every call that ends or removes a session going wrong, in every way in which it can."""
    for call in ("end_all_ledgers", "note_quiet", "remove_session", "compact", "oldest_entries"):
        for fault in PASSING_FAULTS:
            yield call, fault


@pytest.mark.parametrize(("call", "fault"), [*faults()])
async def test_when_a_call_of_the_removal_goes_wrong_the_next_run_ends_it(
    world: World, call: str, fault: CallFault
) -> None:
    await send(world, draft("first"), draft("last", 2, "account.close"))
    # The first three looks go wrong, and then there are as many as it takes.
    for look in range(3 + REMOVED_DAYS // 7):
        world.clock.seconds += 7 * DAY + 1
        if look < REMOVED_DAYS // 7:
            world.journal.fault_plan.plan(call, fault)
        for region in REGIONS:
            try:
                await getattr(world, region).compactor.compact()
            except (LockstepError, ProcessKilled):
                setattr(world, region, world.worker(region))
        # Whatever is left is told from what is new, or is all gone.
        newest = world.journal.newest("acc-7")
        assert newest is None or newest.is_ended
        assert ("genesis" in kept(world)) == (newest is not None)

    assert kept(world) == []


async def test_when_two_regions_remove_a_session_at_once_the_next_one_is_not_touched(
    world: World,
) -> None:
    await send(world, draft("last", 1, "account.close"))
    await pass_days(world, REMOVED_DAYS - 1)
    world.clock.seconds += 2 * DAY

    @in_place_of(world.journal, "remove_session", once=True)
    async def remove_late(remove: object, stored: object) -> bool:
        # The other region is faster, and the name is used again before this one goes on.
        await world.west.compactor.compact()
        await send(world, draft("again", 7))
        return bool(await remove(stored))  # type: ignore[operator]

    await asyncio.gather(world.east.compactor.compact())

    assert world.amounts() == [7]
    assert len(world.documents("genesis")) == 1


async def test_when_something_comes_during_the_removal_it_is_refused_by_name(
    world: World,
) -> None:
    await send(world, draft("last", 1, "account.close"))
    await pass_days(world, REMOVED_DAYS - 1)
    world.clock.seconds += DAY
    plain = replace(message(9), number=None, time=at_day(REMOVED_DAYS))

    @in_place_of(world.journal, "remove_session", once=True)
    async def remove_late(remove: object, stored: object) -> bool:
        assert isinstance(await world.west.consumer.consume(plain), Refused)
        return bool(await remove(stored))  # type: ignore[operator]

    await world.east.compactor.compact()

    assert [e["status"] for e in world.entries()] == ["completed", "skipped"]


async def test_when_a_worker_slept_on_an_ended_session_it_commits_nothing_in_the_next(
    world: World,
) -> None:
    await send(world, draft("last", 1, "account.close"))
    sleeper = world.worker("east")
    head = require(await sleeper.worker.read_head("acc-7"))
    made_from = await sleeper.consumer.dispatcher.prepare(head, message(0, group="other"))
    await pass_days(world, REMOVED_DAYS + 1)
    await send(world, draft("again", 7))
    assert head.position == require(world.journal.newest("acc-7")).position

    assert await sleeper.consumer.give_entry(made_from) is None

    assert world.amounts() == [7]
    assert world.documents("entry")[-1].get("ended") is None


async def test_when_a_session_is_removed_between_a_read_and_a_write_nothing_is_written(
    world: World,
) -> None:
    await send(world, draft("last", 1, "account.close"))
    plain = replace(message(9), number=None, time=at_day(REMOVED_DAYS + 1))
    sleeper = world.worker("west")

    @in_place_of(world.journal, "append", once=True)
    async def append_late(append: object, *arguments: object) -> object:
        await pass_days(world, REMOVED_DAYS + 1)
        await send(world, draft("again", 7))
        return await append(*arguments)  # type: ignore[operator]

    made_from = await sleeper.consumer.dispatcher.prepare(
        await sleeper.worker.read_head("acc-7"), plain
    )
    assert await sleeper.consumer.give_entry(made_from) is None

    assert world.amounts() == [7]
    assert [bool(one.get("ended")) for one in world.entries()] == [False]


async def test_when_a_worker_remembers_an_open_session_it_forgets_in_time(world: World) -> None:
    (first, _) = await send(world, draft("first"), draft("second"))
    east = world.east
    assert east.worker.heads["acc-7"].is_ours
    # Another region ends it, and this worker hears nothing of it.
    await world.west.resolver.resolve("acc-7", END)
    for _ in range(REMOVED_DAYS + 8):
        world.clock.seconds += DAY + 1
        await world.west.compactor.compact()
    assert kept(world) == []
    new = await world.west.ingest.take("acc-7", draft("new", 7))
    assert new.number == first.number

    await take(east, new)

    assert world.amounts() == [7]


@pytest.mark.parametrize("region", REGIONS)
async def test_when_copies_come_just_before_the_removal_nobody_remembers_them(
    world: World, region: str
) -> None:
    sent = await send(world, draft("first", 5), draft("last", 6, "account.close"))
    await pass_days(world, REMOVED_DAYS - 1)
    worker = getattr(world, region)
    assert await take(worker, *sent) == [AlreadyDone(), AlreadyDone()]
    await pass_days(world, 1)
    assert kept(world) == []

    # The same numbers, and the same content.
    drafts = draft("once more", 5), draft("again the last", 6, "account.close")
    first, second = [await world.east.ingest.take("acc-7", one) for one in drafts]
    await take(world.east, first)
    await take(worker, second)

    assert world.amounts() == [5, 6]


async def test_when_a_copy_without_a_number_comes_after_all_it_is_refused_by_name(
    world: World,
) -> None:
    only = replace(message(0, kind="account.close"), number=None, time=SENT_AT)
    await take(world.east, only)
    await pass_days(world, REMOVED_DAYS + 1)
    assert kept(world) == []

    assert isinstance(await world.west.consumer.consume(only), Expired)

    assert kept(world) == []


def at_day(day: int) -> str:
    return datetime.fromtimestamp(EPOCH_SECONDS + day * DAY, UTC).isoformat()


@pytest.mark.parametrize("is_used_again", [False, True])
async def test_when_a_dead_letter_is_older_than_its_session_it_is_refused_by_name(
    world: World, is_used_again: bool
) -> None:
    sent = await send(world, draft("first"), draft("last", 2, "account.close"))
    await pass_days(world, REMOVED_DAYS + 1)
    if is_used_again:
        await send(world, draft("again", 7))
    for copy in sent:
        enqueued = datetime.fromtimestamp(EPOCH_SECONDS, UTC)
        letter = DeadLetter(
            "acc-7", to_properties(copy), copy.body, "TTLExpiredException", enqueued_at=enqueued
        )
        world.bus.dead_letters["west", "in"].append(letter)

    assert await world.west.dead_letters.sweep() == 2

    assert world.amounts() == ([7] if is_used_again else [])
    assert len(world.reports()) == 2
    assert all("its session began later" in report["reason"] for report in world.reports())


async def test_when_a_dead_letter_is_old_and_its_session_older_it_is_run(world: World) -> None:
    sent = await send(world, draft("first"))
    later = await world.east.ingest.take("acc-7", draft("second", 2))
    world.clock.seconds += 20 * DAY
    enqueued = datetime.fromtimestamp(EPOCH_SECONDS + 7200, UTC)
    for copy in (*sent, later):
        world.bus.dead_letters["west", "in"].append(
            DeadLetter("acc-7", to_properties(copy), copy.body, "expired", enqueued_at=enqueued)
        )

    await world.west.dead_letters.sweep()

    assert world.amounts() == [1, 2]
    assert world.reports() == []


# Producers outside the apps keep their ledgers in a container of their own.


def outside(world: World) -> tuple[MemoryJournal, Producer]:
    """The container of such ledgers, and a producer."""
    ledgers = MemoryJournal(world.clock)
    for region in REGIONS:
        getattr(world, region).compactor.ledgers = ledgers
    return ledgers, Producer(ledgers, world.delivery())


async def publish(world: World, producer: Producer, *drafts: Draft) -> None:
    published = await producer.publish("acc-7", drafts, ProducerOptions("till"))
    for worker in (world.east, world.west):
        await take(worker, *published.messages)


async def test_ledgers_in_a_container_of_their_own_go_too(world: World) -> None:
    ledgers, producer = outside(world)
    await publish(world, producer, draft("a"), draft("z", 2, "account.close"))

    await pass_days(world, 8)
    with pytest.raises(SessionEnded):
        await producer.publish("acc-7", [draft("late")], ProducerOptions("till"))
    await pass_days(world, REMOVED_DAYS - 7)

    assert (kept(world), [*ledgers.store.partitions["acc-7"]]) == ([], [])
    await publish(world, producer, draft("new", 7))
    assert world.amounts() == [7]


async def test_when_the_worker_dies_between_the_removals_producers_are_told_and_it_goes_on(
    world: World,
) -> None:
    ledgers, producer = outside(world)
    await publish(world, producer, draft("z", 2, "account.close"))
    await pass_days(world, REMOVED_DAYS - 1)
    ledgers.fault_plan.plan("remove_ledgers", CallFault.KILLED_BEFORE)
    world.clock.seconds += DAY + 1
    with suppress(ProcessKilled):
        await world.east.compactor.compact()
    with suppress(ProcessKilled):
        await world.west.compactor.compact()
    assert (kept(world), len(ledgers.store.partitions["acc-7"])) == ([], 1)

    # By HTTP the name is used again; this producer is refused until its ledger is gone.
    await send(world, draft("again", 7))
    with pytest.raises(SessionEnded):
        await producer.publish("acc-7", [draft("late")], ProducerOptions("till"))
    await pass_days(world, 30)

    assert [*ledgers.store.partitions["acc-7"]] == []
    await publish(world, producer, draft("new", 8))
    assert world.amounts() == [7, 8]


async def test_when_ledgers_outside_cannot_be_ended_the_session_stays(world: World) -> None:
    ledgers, producer = outside(world)
    await publish(world, producer, draft("z", 2, "account.close"))

    @in_place_of(ledgers, "end_all_ledgers")
    async def refuse(*_: object, **__: object) -> None:
        raise Unavailable("its container is gone", 1.0)

    await pass_days(world, 60)

    assert require(world.journal.newest("acc-7")).quiet is None


def test_a_queue_keeps_copies_no_longer_than_ended_sessions_are_kept() -> None:
    kept_days = re.findall(
        r"defaultMessageTimeToLive: 'P(\d+)D'", (ROOT / "infra/region.bicep").read_text("utf-8")
    )

    assert kept_days
    assert all(int(days) * DAY <= Policy().copies_seconds for days in kept_days)


# What is counted in docs/limits.md.

LOOKS = {"after a day": 1, "after a week": 7, "after three weeks": 21, "after a year": 365}
COUNTED = {
    "over HTTP, never ended": "account.add",
    "over HTTP, `ends=True`": "account.close",
    "over HTTP, `ends_after` of 30 days": "account.visit",
    "without a number, never ended": "account.add",
    "without a number, `ends=True`": "account.close",
}


@pytest.mark.parametrize("named", COUNTED)
async def test_what_a_session_of_one_message_leaves_is_counted(world: World, named: str) -> None:
    if named.startswith("over HTTP"):
        await send(world, draft("only", 1, COUNTED[named]))
    else:
        only = replace(message(0, kind=COUNTED[named]), number=None, time=SENT_AT)
        for worker in (world.east, world.west):
            await take(worker, only)
    counted: dict[str, str] = {}
    passed, store = 0, world.journal.store
    for when, days in LOOKS.items():
        await pass_days(world, days - passed)
        passed = days
        left = [store.read("acc-7", one) or {} for one in kept(world)]
        # What the store itself adds to a document is no part of it.
        said = [{k: v for k, v in one.items() if not k.startswith("_")} for one in left]
        size = sum(len(json.dumps(one)) for one in said)
        counted[when] = f"{len(left)} documents, {size} bytes" if left else "nothing"

    table = page("docs/limits.md").table("a session of one message")
    assert {row[0] for row in table.rows} == {*COUNTED}
    (row,) = [one for one in table.rows if one[0] == named]
    assert dict(zip(table.head, row, strict=True)) == {table.head[0]: named, **counted}
