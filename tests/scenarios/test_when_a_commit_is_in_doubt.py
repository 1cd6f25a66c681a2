"""A commit has no answer, or its worker pauses or dies after it: one effect, the same outputs."""

import asyncio

import pytest

from shared.domain import next_entry
from shared.domain.errors import OutcomeUnknown
from shared.domain.handler import HandlerInput
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.domain.next_entry import open_entry
from shared.engine.consume.outcomes import AlreadyDone, Claimed, Outcome, Processed
from shared.ports import SessionNeed, WriteResult
from shared.storage.documents import MILESTONE_EVERY, STAGED_SECONDS, decode_pending
from shared.testkit.injected_faults import CallFault
from shared.testkit.memory import MemoryJournal
from tests.business import (
    LEASE_OVER,
    Gated,
    Outside,
    nothing,
    payment,
    worker_with,
    world_of,
)
from tests.world import LAG_SECONDS, POLICY, REGIONS, World, message, take

# When the commits answer is lost: the write of the entry gets no answer: it is neither success nor
# failure until read back.


async def test_an_applied_commit_is_recognised_as_our_own(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)

    outcome = await world.east.consumer.consume(message(0))

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1]
    assert world.journal.fault_plan.calls["append"] == 1


async def test_a_lost_commit_is_made_again_as_the_same_attempt(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.LOST, CallFault.LOST)

    outcome = await world.east.consumer.consume(message(0))

    assert isinstance(outcome, Processed)
    assert [entry["attempt"] for entry in world.entries()] == ["east-1/1"]


async def test_a_commit_never_answered_stays_in_the_queue_and_is_done_once(world: World) -> None:
    world.journal.fault_plan.plan("append", *[CallFault.LOST] * 6)
    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(message(0))

    await world.east.consumer.consume(message(0))

    assert world.amounts() == [1]


async def test_an_applied_commit_that_cannot_be_read_back_is_not_repeated(world: World) -> None:
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)
    world.journal.fault_plan.plan("entry", CallFault.REFUSED)
    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(message(0))

    assert await world.east.consumer.consume(message(0)) == AlreadyDone()

    assert world.amounts() == [1]


async def test_a_lost_commit_is_made_again_though_the_store_refuses_for_a_while(
    world: World,
) -> None:
    world.journal.fault_plan.plan("append", CallFault.LOST, CallFault.REFUSED, CallFault.REFUSED)

    outcome = await world.east.consumer.consume(message(0))

    assert isinstance(outcome, Processed)
    assert world.amounts() == [1]


async def test_the_outputs_of_an_unanswered_commit_are_those_of_an_answered_one(
    world: World,
) -> None:
    world.journal.fault_plan.plan("append", CallFault.UNANSWERED)
    await world.east.consumer.consume(message(0, kind="account.bill"))

    quiet = World()
    await quiet.east.consumer.consume(message(0, kind="account.bill"))

    assert world.outputs("east") == quiet.outputs("east") != []
    assert world.outputs("west") == quiet.outputs("west") != []


# When the owner dies after commit: the entry is in the journal; the process dies before it
# dispatches, or before it settles.


BILL = message(0, kind="account.bill")


async def commit_and_die(world: World) -> list[tuple[str, bytes]]:
    """Commit a bill without dispatching it; the answer is what should have been sent."""
    healthy = World()
    await healthy.east.consumer.consume(BILL)
    consumer = world.east.consumer
    opened = next_entry.open_entry(await consumer.committer.prepare(None, BILL))
    ending = await consumer.runner.run(opened, HandlerInput())
    assert await consumer.committer.commit(None, ending.entry) is WriteResult.CREATED
    world.east = world.worker("east")
    assert world.outputs("east") == world.outputs("west") == []
    return healthy.outputs("east")


async def test_the_redelivered_message_is_done_already(world: World) -> None:
    await world.east.consumer.consume(message(0))

    assert await world.worker("east").consumer.consume(message(0)) == AlreadyDone()

    assert world.amounts() == [1]


async def test_the_redelivery_sends_the_outputs(world: World) -> None:
    expected = await commit_and_die(world)

    assert await world.east.consumer.consume(BILL) == AlreadyDone()

    assert world.outputs("east") == world.outputs("west") == expected


async def test_the_copy_in_the_other_region_leaves_the_outputs_to_the_rescue(
    world: World,
) -> None:
    await commit_and_die(world)

    assert await world.west.consumer.consume(BILL) == AlreadyDone()

    assert world.outputs("east") == world.outputs("west") == []
    assert await world.pending() == ["acc-7"]


async def test_the_next_message_sends_the_outputs_before_its_own(world: World) -> None:
    expected = await commit_and_die(world)

    await world.west.consumer.consume(message(1, kind="account.bill"))

    assert world.outputs("west")[:1] == expected
    assert len(world.outputs("west")) == 2
    assert world.outputs("east") == world.outputs("west")


async def test_the_change_feed_sends_the_outputs_after_the_lag(world: World) -> None:
    expected = await commit_and_die(world)
    seen = [pending for entry in world.entries() if (pending := decode_pending(entry))]

    await world.east.recovery.recover(seen)
    await world.west.recovery.recover(seen)

    assert world.clock.now() >= LAG_SECONDS
    assert world.outputs("east") == world.outputs("west") == expected


async def test_the_change_feed_finds_nothing_to_do_when_the_outputs_went_out(world: World) -> None:
    await world.east.consumer.consume(BILL)
    world.journal.fault_plan.plan("leave_pending", CallFault.LOST)
    await world.east.consumer.consume(message(1, kind="account.bill"))
    seen = [pending for entry in world.entries() if (pending := decode_pending(entry))]
    assert [pending.position for pending in seen] == [1]

    await world.east.consumer.consume(message(1, kind="account.bill"))
    sent_before = world.outputs("east")
    await world.east.recovery.recover(seen)

    assert world.outputs("east") == sent_before


async def test_the_sweep_alone_sends_the_outputs(world: World) -> None:
    expected = await commit_and_die(world)
    world.clock.seconds += LAG_SECONDS

    assert (await world.east.recovery.sweep()).helped == 1
    world.clock.seconds += LAG_SECONDS
    assert (await world.west.recovery.sweep()).helped == 1

    assert world.outputs("east") == world.outputs("west") == expected
    assert await world.pending() == []


# When a paused owner wakes: a worker stands still for longer than its lease, and wakes when another
# has done its work.


# What the owner was about to call when it stood still; with none it is in its handler.
PAUSES = {
    "in its handler": (),
    "before it reads": ("stored_entry",),
    "before it writes": ("replace",),
}


class Paused:
    """An owner in the east that has called the outside, and then stood still."""

    def __init__(self, arriving: Message, *operations: str) -> None:
        self.outside = Outside(after=self.pause)
        self.world = world_of(self.outside)
        self.gated = Gated(self.world.journal, *operations)
        self.arriving = arriving
        self.operations = operations

    async def pause(self) -> None:
        """Stand still, the first time."""
        self.outside.after = nothing
        self.gated.gate.clear()
        if not self.operations:
            await self.gated.gate.wait()

    async def stands_still(self) -> None:
        """Come as far as the pause."""
        owner = worker_with(self.world, "east", journal=self.gated)
        self.working = asyncio.create_task(owner.consumer.consume(self.arriving))
        await self.gated.waits.wait()

    async def wakes(self) -> Outcome:
        """Go on where it stood, to the end."""
        self.gated.gate.set()
        return await self.working


async def taken_over(arriving: Message, *operations: str) -> Paused:
    """The west has done the work of an owner that still stands."""
    paused = Paused(arriving, *operations)
    await paused.stands_still()
    paused.world.clock.seconds += LEASE_OVER
    assert isinstance(await paused.world.west.consumer.consume(arriving), Processed)
    return paused


async def healthy(*arrivals: Message) -> World:
    """What should have happened."""
    world = world_of(Outside())
    await take(world.east, *arrivals)
    return world


@pytest.mark.parametrize("pause", PAUSES)
async def test_its_result_is_refused_and_its_outputs_are_never_sent(pause: str) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    world = paused.world
    entries = [dict(entry) for entry in world.entries()]
    sent = {region: world.outputs(region) for region in REGIONS}

    assert await paused.wakes() == AlreadyDone()

    assert [dict(entry) for entry in world.entries()] == entries
    assert {region: world.outputs(region) for region in REGIONS} == sent
    assert world.amounts() == [1]
    for region in REGIONS:
        assert world.outputs(region) == (await healthy(payment(0))).outputs(region) != []


@pytest.mark.parametrize("pause", PAUSES)
async def test_both_runs_asked_the_outside_with_the_same_key(pause: str) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    await paused.wakes()

    assert len(paused.outside.asked) == 2
    assert len(paused.outside.keys[1]) == 1


@pytest.mark.parametrize("pause", PAUSES)
async def test_what_it_staged_is_never_sent_and_does_not_stay(pause: str) -> None:
    paused = await taken_over(payment(0, "account.print"), *PAUSES[pause])
    world = paused.world

    assert await paused.wakes() == AlreadyDone()

    quiet = await healthy(payment(0, "account.print"))
    for region in REGIONS:
        assert world.outputs(region) == quiet.outputs(region) != []
    world.clock.seconds += STAGED_SECONDS
    assert staged(world.journal) == []


def staged(journal: MemoryJournal) -> list[str]:
    """The documents with staged outputs that are kept."""
    ids = [d["id"] for d in journal.partitions["acc-7"].values() if d["kind"] == "staged"]
    return [document_id for document_id in ids if journal.store.read("acc-7", document_id)]


@pytest.mark.parametrize("pause", PAUSES)
async def test_the_session_has_gone_on_meanwhile(pause: str) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    bills = [message(n, kind="account.bill") for n in (1, 2)]
    await take(paused.world.west, *bills)

    assert await paused.wakes() == AlreadyDone()

    quiet = await healthy(payment(0), *bills)
    assert paused.world.amounts() == [1, 2, 3]
    for region in REGIONS:
        assert paused.world.outputs(region) == quiet.outputs(region)


@pytest.mark.parametrize("pause", PAUSES)
async def test_one_that_nobody_took_over_ends_its_own_claim(pause: str) -> None:
    paused = Paused(payment(0), *PAUSES[pause])
    await paused.stands_still()
    paused.world.clock.seconds += 10 * LEASE_OVER

    assert isinstance(await paused.wakes(), Processed)

    assert len(paused.outside.asked) == 1
    assert paused.world.outputs("east") == (await healthy(payment(0))).outputs("east")


async def test_the_one_that_took_over_is_not_disturbed_while_it_still_works() -> None:
    paused = Paused(payment(0))
    await paused.stands_still()
    world = paused.world
    world.clock.seconds += LEASE_OVER
    second = Gated(world.journal)

    async def pause_too() -> None:
        paused.outside.after = nothing
        second.gate.clear()
        await second.gate.wait()

    paused.outside.after = pause_too
    west = worker_with(world, "west", journal=second)
    working = asyncio.create_task(west.consumer.consume(payment(0)))
    await second.waits.wait()
    assert await paused.wakes() == Claimed()
    second.gate.set()

    assert isinstance(await working, Processed)
    assert world.amounts() == [1]
    assert world.entries()[0]["attempt"].startswith("west")
    assert await world.journal.sessions(SessionNeed.TAKE_OVER, limit=1) == []


# When a worker sleeps past the retention: a worker that slept longer than entries are kept wakes
# with an old head, or with none at all.


ENTRIES = MILESTONE_EVERY + 5


async def compacted_world() -> tuple[World, list[Entry]]:
    """A session whose first entries were removed, and every entry it ever had."""
    world = World()
    await take(world.west, *(message(sequence) for sequence in range(ENTRIES)))
    entries = [await world.journal.entry("acc-7", n) for n in range(ENTRIES)]
    world.clock.seconds += POLICY.retention_seconds
    await world.east.compactor.compact()
    return world, [entry for entry in entries if entry]


async def test_it_cannot_commit_on_any_old_head() -> None:
    world, heads = await compacted_world()
    before = {entry["id"]: dict(entry) for entry in world.entries()}

    for head in [None, *heads[:-1]]:
        position = head.position + 1 if head else 0
        sleeper = world.worker("east").consumer
        sleeper.worker.remember_head("acc-7", head, is_ours=True)
        made_from = await sleeper.committer.prepare(head, message(position, amount=-1))
        assert await sleeper.give_entry(made_from) is None, position

    assert {entry["id"]: dict(entry) for entry in world.entries()} == before
    assert world.outputs("east") == world.outputs("west") == []


async def test_it_cannot_commit_on_an_old_head_though_its_write_is_applied_late() -> None:
    world, heads = await compacted_world()

    for head in heads[:-1]:
        sleeper = world.worker("east").consumer
        made_from = await sleeper.committer.prepare(head, message(head.position + 1, amount=-1))
        ending = await sleeper.runner.run(open_entry(made_from), HandlerInput(head.state or {}))
        appended = await world.journal.append(ending.entry)
        assert appended is WriteResult.ORPHANED, head.position


@pytest.mark.parametrize("sequence", [0, 1, MILESTONE_EVERY - 1, MILESTONE_EVERY, ENTRIES - 1])
async def test_its_message_is_found_to_be_done(sequence: int) -> None:
    world, heads = await compacted_world()
    sleeper = world.worker("east").consumer
    sleeper.worker.remember_head("acc-7", heads[sequence - 1] if sequence else None, is_ours=True)

    assert await sleeper.consume(message(sequence)) == AlreadyDone()

    assert world.amounts() == list(range(1, ENTRIES + 1))


async def test_a_sleeper_that_never_saw_the_session_does_not_begin_it_again() -> None:
    world, _ = await compacted_world()

    assert await world.worker("east").consumer.consume(message(0)) == AlreadyDone()

    assert [int(entry["id"]) for entry in world.entries()] == [ENTRIES - 1]


async def test_it_goes_on_with_new_messages_after_a_fresh_look() -> None:
    world, heads = await compacted_world()
    sleeper = world.worker("east").consumer
    sleeper.worker.remember_head("acc-7", heads[3], is_ours=True)

    assert isinstance(await sleeper.consume(message(ENTRIES)), Processed)

    assert world.amounts() == list(range(1, ENTRIES + 2))
