"""Entries that nothing needs any more are removed; whatever is still needed stays."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from shared.domain import next_entry
from shared.domain.journal import Status
from shared.domain.message import home_region
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.engine.operate.compact import LEFT_SECONDS, REMOVED_AT_ONCE, RUN_SECONDS, Compacted
from shared.storage.entries import GENESIS_ID, MILESTONE_EVERY, position_id
from shared.testkit.injected_faults import CallFault
from tests.sized_outputs import WRITER, handlers, writing
from tests.world import (
    IMPATIENT,
    LAG_SECONDS,
    POLICY,
    REGIONS,
    SKIP,
    World,
    in_place_of,
    message,
    take,
)

RETENTION = POLICY.retention_seconds
MANY = 2 * MILESTONE_EVERY + 10
DAY_SECONDS = 24 * 3600.0


async def long_session(world: World, count: int = MANY, session: str = "acc-7") -> None:
    """A session with so many entries, all older than the retention."""
    await take(world.east, *(message(n, session=session) for n in range(count)))
    world.clock.seconds += RETENTION


def positions(world: World, session: str = "acc-7") -> list[int]:
    """The entries that are kept."""
    return [int(entry["id"]) for entry in world.entries(session)]


async def test_of_a_session_that_is_old_only_the_newest_entry_is_left(world: World) -> None:
    await long_session(world)

    assert await world.east.compactor.compact() == Compacted(MANY - 1)

    assert positions(world) == [MANY - 1]
    assert world.amounts() == list(range(1, MANY + 1))
    assert GENESIS_ID in world.journal.partitions["acc-7"]
    # It is not looked at again.
    world.journal.fault_plan.calls.clear()
    assert await world.east.compactor.compact() == Compacted()
    assert dict(world.journal.fault_plan.calls) == {"sessions": 2}


async def test_nothing_younger_than_the_retention_goes(world: World) -> None:
    await long_session(world)
    world.clock.seconds -= 1

    assert await world.east.compactor.compact() == Compacted()

    assert len(positions(world)) == MANY


@pytest.mark.parametrize("count", [*range(1, 12), MILESTONE_EVERY + 1])
async def test_a_short_session_is_compacted_too_and_goes_on(world: World, count: int) -> None:
    await long_session(world, count)

    await world.east.compactor.compact()

    assert {*world.journal.partitions["acc-7"]} == {GENESIS_ID, position_id(count - 1)}
    assert not world.journal.store.flagged("acc-7")
    await take(world.east, message(count))
    assert world.amounts() == list(range(1, count + 2))


async def test_entries_that_were_too_young_are_removed_when_they_are_old(world: World) -> None:
    kept: list[list[int]] = []
    for n in range(7):
        await take(world.east, message(n))
        world.clock.seconds += RETENTION / 3 + 1
        await world.east.compactor.compact()
    for _ in range(4):
        kept.append(positions(world))
        world.clock.seconds += RETENTION / 3 + 1
        await world.east.compactor.compact()

    # No message comes any more, and no entry above the fourth has a mark of its own.
    assert kept[0] == [4, 5, 6]
    assert kept[-1] == positions(world) == [6]


async def test_one_that_needs_an_older_entry_is_not_looked_at_for_ever(world: World) -> None:
    await take(world.east, message(0), *(message(n, kind="account.hint") for n in range(1, 8)))
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()

    assert positions(world) == list(range(8))
    assert not any(d.get("milestone") for d in world.journal.store.flagged("acc-7"))
    await take(world.east, message(8))
    world.clock.seconds += RETENTION
    await world.east.compactor.compact()
    assert positions(world) == [8]


async def test_a_run_goes_on_until_nothing_is_left(world: World) -> None:
    own = [f"acc-{n}" for n in range(100, 140) if home_region(f"acc-{n}", REGIONS) == "east"]
    await long_session(world, 1_050)
    for session in own:
        await long_session(world, 5, session)

    assert await world.east.compactor.compact() == Compacted(1_049 + 4 * len(own))

    assert all(len(positions(world, session)) == 1 for session in ("acc-7", *own))


async def test_a_run_ends_when_its_time_is_over_and_the_next_goes_on(world: World) -> None:
    await long_session(world, 1_050)

    @in_place_of(world.journal, "compact")
    async def compact_slowly(compact: Any, *arguments: Any) -> None:
        world.clock.seconds += RUN_SECONDS / 2
        await compact(*arguments)

    assert await world.east.compactor.compact() == Compacted(2 * REMOVED_AT_ONCE)

    # What is left is the newer part of the journal, without a hole.
    assert positions(world) == list(range(2 * REMOVED_AT_ONCE, 1_050))
    assert await world.east.compactor.compact() == Compacted(2 * REMOVED_AT_ONCE)


async def test_a_worker_that_dies_between_two_batches_leaves_no_hole(world: World) -> None:
    await long_session(world, 350)
    heads = [await world.journal.entry("acc-7", n) for n in range(350)]

    @in_place_of(world.journal, "compact")
    async def compact_once(compact: Any, *arguments: Any) -> None:
        await compact(*arguments)
        world.journal.fault_plan.plan("compact", CallFault.REFUSED)

    assert (await world.east.compactor.compact()).failed == 1

    assert positions(world) == list(range(REMOVED_AT_ONCE, 350))
    # A sleeper's next entry is refused, whatever head it remembers.
    for head in heads[:-1]:
        sleeper = world.worker("west").consumer
        sleeper.worker.remember_head("acc-7", head, is_ours=True)
        assert head is not None
        made_from = await sleeper.dispatcher.prepare(head, message(head.position + 1, amount=-1))
        assert await sleeper.give_entry(made_from) is None


async def test_each_region_compacts_its_own_share(world: World) -> None:
    share: dict[str, list[str]] = {region: [] for region in REGIONS}
    for session in (f"acc-{n}" for n in range(40)):
        await long_session(world, 5, session)
        world.clock.seconds -= RETENTION
        share[home_region(session, REGIONS)].append(session)
    world.clock.seconds += RETENTION

    assert await world.east.compactor.compact() == Compacted(4 * len(share["east"]))
    assert {len(positions(world, session)) for session in share["east"]} == {1}
    assert {len(positions(world, session)) for session in share["west"]} == {5}
    assert await world.west.compactor.compact() == Compacted(4 * len(share["west"]))

    assert 10 <= len(share["east"]) <= 30


async def test_a_dead_regions_share_is_compacted_a_day_later(world: World) -> None:
    session = next(s for s in (f"acc-{n}" for n in range(9)) if home_region(s, REGIONS) == "west")
    await long_session(world, 5, session)
    world.clock.seconds += LEFT_SECONDS - 1

    assert await world.east.compactor.compact() == Compacted()
    world.clock.seconds += 1

    assert await world.east.compactor.compact() == Compacted(4)


async def test_a_journal_of_before_the_early_marks_is_compacted_as_before(world: World) -> None:
    await long_session(world, MILESTONE_EVERY + 60)
    for document in world.journal.partitions["acc-7"].values():
        if document["kind"] == "entry" and int(document["id"]) < MILESTONE_EVERY:
            document.pop("milestone", None)

    await world.east.compactor.compact()

    assert positions(world) == [MILESTONE_EVERY + 59]


@pytest.mark.proof
@pytest.mark.slow
async def test_documents_kept_after_a_year_of_short_sessions_are_those_of_the_retention() -> None:
    # Three sessions begin each day, with five messages each, at most a day and a half apart.
    world = World(policy=replace(POLICY, retention_seconds=7 * DAY_SECONDS))
    kept: list[int] = []
    for day in range(365 + 7):
        for n, begun in enumerate((day, day - 1, day - 2)):
            for ended in range(3):
                session = f"flight-{begun}-{ended}"
                numbers = ((0,), (1, 2, 3), (4,))[n] if begun >= 0 else ()
                await take(world.east, *(message(i, session=session) for i in numbers))
        world.clock.seconds += DAY_SECONDS
        for region in (world.east, world.west):
            await region.compactor.compact()
        kept.append(sum(len(documents) for documents in world.journal.partitions.values()))

    sessions = len(world.journal.partitions)
    # Of each session two documents stay; all others are of sessions that were active in the last
    # days: those of the retention, of one more, and of the day between two runs.
    superseded = [total - 2 * 3 * (day + 1) for day, total in enumerate(kept)]
    assert sessions == 3 * (365 + 7)
    assert max(superseded[20:]) == superseded[-1] <= 3 * 4 * 9
    assert superseded[20:] == superseded[20:21] * len(superseded[20:])


async def test_a_pending_outbox_keeps_its_entry_and_all_after_it(world: World) -> None:
    await take(world.east, *(message(n) for n in range(50)))
    with world.without("west"):
        await take(world.east, message(50, kind="account.bill"))
        await take(world.east, *(message(n) for n in range(51, MANY)))
        world.clock.seconds += RETENTION
        quiet = world.outputs("east")

        await world.east.compactor.compact()
        assert positions(world) == list(range(50, MANY))

    await world.west.recovery.sweep()
    world.clock.seconds += RETENTION
    await world.east.compactor.compact()
    assert world.outputs("west") == quiet != []
    assert positions(world) == [MANY - 1]


async def test_outputs_to_be_made_again_keep_the_state_before_them() -> None:
    world, quiet = World(handlers=handlers), World(handlers=handlers)
    again = [writing([n % 3], n, kind="write.again") for n in range(MANY)]
    await take(quiet.east, *again)
    await take(world.east, *again[:120])
    with world.without("west"):
        await take(world.east, *again[120:])
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()
    assert positions(world, WRITER)[0] == 119
    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == world.outputs("east") == quiet.outputs("east")
    await world.east.compactor.compact()
    world.clock.seconds += RETENTION
    await world.east.compactor.compact()
    assert positions(world, WRITER) == [MANY - 1]


async def test_the_fault_of_a_halted_session_stays_until_it_is_resolved(world: World) -> None:
    await take(world.east, *(message(n) for n in range(50)), message(50, kind="account.burn"))
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    await take(world.east, *(message(n) for n in range(51, MANY)))
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()
    assert positions(world)[0] == 49
    await world.worker("east").resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [n + 1 for n in range(MANY) if n != 50]


async def test_the_state_of_a_session_that_only_parks_stays(world: World) -> None:
    await take(world.east, message(0))
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    await take(world.east, *(message(n) for n in range(2, MANY)))
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()
    await world.worker("east").consumer.consume(message(1))

    assert world.amounts() == list(range(1, MANY + 1))


async def test_compaction_is_harmless_while_messages_are_committed(world: World) -> None:
    await long_session(world)
    compactor = world.worker("east").compactor

    @in_place_of(world.journal, "append")
    async def append_after_compaction(append: Any, *arguments: object) -> object:
        await compactor.compact()
        return await append(*arguments)

    await take(world.east, *(message(n) for n in range(MANY, MANY + 150)))

    assert world.amounts() == list(range(1, MANY + 151))


async def test_two_compactors_at_once_remove_nothing_that_is_needed(world: World) -> None:
    await long_session(world, 350)

    @in_place_of(world.journal, "compact", once=True)
    async def overtaken(compact: Any, *arguments: Any) -> None:
        await world.worker("east").compactor.compact()
        await compact(*arguments)

    await world.east.compactor.compact()

    assert positions(world) == [349]
    assert world.amounts() == list(range(1, 351))


async def test_sessions_that_cannot_be_compacted_do_not_keep_others_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One search sees only some documents of sessions that cannot be helped.
    monkeypatch.setattr("shared.engine.operate.compact.SEARCHED_MAX", 10)
    with world.without("west"):
        for number in range(3):
            session = f"stuck-{number}"
            bill = message(0, session=session, kind="account.bill")
            await take(world.east, bill, *(message(n, session=session) for n in range(1, 110)))
    await long_session(world)

    assert await world.east.compactor.compact() == Compacted(MANY - 1)

    assert sorted(world.east.compactor.failed.newest()) == ["stuck-0", "stuck-1", "stuck-2"]


async def test_a_session_that_another_worker_compacted_is_not_tried_for_ever(world: World) -> None:
    await long_session(world)
    world.journal.fault_plan.plan("compact", CallFault.REFUSED)
    await world.east.compactor.compact()
    assert world.east.compactor.failed.newest() == ["acc-7"]
    await world.worker("east").compactor.compact()

    assert await world.east.compactor.compact() == Compacted()

    assert world.east.compactor.failed.newest() == []


async def test_the_owner_of_a_claim_at_a_milestone_still_finds_its_start(world: World) -> None:
    await take(world.east, *(message(n) for n in range(MILESTONE_EVERY)))
    await take(world.east, message(MILESTONE_EVERY, kind="account.bill"))
    # As an effectful handler's claim would lie there.
    document = world.journal.partitions["acc-7"][position_id(MILESTONE_EVERY)]
    document |= {"status": Status.WORKING.value}
    del document["state"]
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()

    assert positions(world) == [MILESTONE_EVERY - 1, MILESTONE_EVERY]


async def test_outputs_of_removed_entries_stay_delivered_once(world: World) -> None:
    bills = [message(n, kind="account.bill") for n in range(MANY)]
    await take(world.east, *bills)
    world.clock.seconds += RETENTION + LAG_SECONDS
    sent = world.outputs("east")

    await world.east.compactor.compact()
    for bill in bills[::20]:
        assert await world.worker("east").consumer.consume(bill) == AlreadyDone()
    await world.west.recovery.sweep()

    assert world.outputs("east") == world.outputs("west") == sent
    assert len(sent) == MANY


@pytest.mark.parametrize("together", [1, 3])
@pytest.mark.parametrize("way", ["parked", "kept"])
async def test_a_worker_whose_remembered_state_is_gone_takes_the_next_message_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch, way: str, together: int
) -> None:
    """Its last entry had no state of its own, and the other region went on from there."""
    monkeypatch.setattr(next_entry, "STATE_INLINE_BYTES_MAX", 0)
    sleeper = world.worker("east", IMPATIENT)
    if way == "parked":
        begin = 1
        await take(sleeper, message(0), message(2))
    else:
        begin = 2
        await take(world.east, message(0), message(1, 0, kind="account.boast"))
        await sleeper.worker.read_head("acc-7")
    await take(world.west, *(message(n) for n in range(begin, MANY)))
    world.clock.seconds += RETENTION
    await world.east.compactor.compact()
    remembered = sleeper.worker.heads["acc-7"].entry
    assert remembered is not None
    assert (remembered.state, remembered.state_at) == (None, 0)
    arriving = [message(n, 100 + n, group="till") for n in range(together)]

    outcomes = await asyncio.gather(*map(sleeper.consumer.consume, arriving))

    assert all(isinstance(outcome, Processed) for outcome in outcomes)
    reader = world.worker("west").worker
    state = (await reader.input_after(await reader.read_head("acc-7"))).state
    sums = [*range(1, MANY + 1), *range(100, 100 + together)]
    assert state["amounts"] == [one for one in sums if way == "parked" or one != begin]
