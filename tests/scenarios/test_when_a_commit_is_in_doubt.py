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
from shared.storage.documents import STAGED_SECONDS, decode_pending
from shared.storage.entries import MILESTONE_EVERY
from shared.testkit.injected_faults import CallFault
from tests.business import (
    LEASE_OVER,
    BusinessWorld,
    Gated,
    Outside,
    healthy,
    nothing,
    payment,
    worker_with,
)
from tests.world import LAG_SECONDS, POLICY, World, message, take

BILL = message(0, kind="account.bill")

# When the commit's answer is lost: it is neither success nor failure until it is read back.


@pytest.mark.parametrize(
    ("faults", "appends"),
    [
        ([CallFault.UNANSWERED], 1),
        ([CallFault.LOST, CallFault.LOST], 3),
        ([CallFault.LOST, CallFault.REFUSED, CallFault.REFUSED], 4),
    ],
    ids=["applied", "lost", "lost, and then refused for a while"],
)
async def test_it_is_recognised_as_our_own_or_made_again_as_the_same_attempt(
    world: World, faults: list[CallFault], appends: int
) -> None:
    world.journal.fault_plan.plan("append", *faults)

    assert isinstance(await world.east.consumer.consume(BILL), Processed)

    assert world.amounts() == [1]
    assert world.journal.fault_plan.calls["append"] == appends
    assert [entry["attempt"] for entry in world.entries()] == ["east-1/1"]
    quiet = await healthy(BILL)
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("west") != []


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


# When the owner dies after the commit, its outputs are sent by whoever comes next.


async def commit_and_die(world: World) -> list[tuple[str, bytes]]:
    """Commit a bill without dispatching it; the answer is what should have been sent."""
    consumer = world.east.consumer
    opened = next_entry.open_entry(await consumer.dispatcher.prepare(None, BILL))
    ending = await consumer.runner.run(opened, BILL, HandlerInput())
    assert await consumer.worker.commit(None, ending.entry) is WriteResult.CREATED
    world.east = world.worker("east")
    assert world.outputs("east") == world.outputs("west") == []
    return (await healthy(BILL)).outputs("east")


async def test_the_redelivery_sends_the_outputs(world: World) -> None:
    expected = await commit_and_die(world)

    assert await world.east.consumer.consume(BILL) == AlreadyDone()

    assert world.outputs("east") == world.outputs("west") == expected
    assert world.amounts() == [1]


async def test_the_copy_in_the_other_region_leaves_the_outputs_to_recovery(world: World) -> None:
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


# When a paused owner wakes, another has done its work: its result is refused, nothing is sent.

# What the owner was about to call when it stood still; with none it is in its handler.
PAUSES = {
    "in its handler": (),
    "before it reads": ("stored_entry",),
    "before it writes": ("replace",),
}


class Paused:
    """An owner in the east that has called the outside, and then stood still."""

    def __init__(self, arriving: Message, *operations: str) -> None:
        self.world = BusinessWorld(Outside(after=self.pause))
        self.gated = Gated(self.world.journal, *operations)
        self.arriving = arriving
        self.operations = operations

    async def pause(self) -> None:
        """Stand still, the first time."""
        self.world.outside.after = nothing
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


@pytest.mark.parametrize("pause", PAUSES)
async def test_its_result_is_refused_its_outputs_never_sent_and_its_key_the_same(
    pause: str,
) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    world = paused.world
    entries = [dict(entry) for entry in world.entries()]

    assert await paused.wakes() == AlreadyDone()

    assert [dict(entry) for entry in world.entries()] == entries
    assert world.amounts() == [1]
    quiet = await healthy(payment(0))
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east") != []
    assert len(world.outside.asked) == 2
    assert len(world.outside.keys[1]) == 1


@pytest.mark.parametrize("pause", PAUSES)
async def test_what_it_staged_is_never_sent_and_does_not_stay(pause: str) -> None:
    paused = await taken_over(payment(0, "account.print"), *PAUSES[pause])
    world = paused.world

    assert await paused.wakes() == AlreadyDone()

    quiet = await healthy(payment(0, "account.print"))
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east") != []
    world.clock.seconds += STAGED_SECONDS
    staged = [d["id"] for d in world.journal.partitions["acc-7"].values() if d["kind"] == "staged"]
    assert not any(world.journal.store.read("acc-7", one) for one in staged)


@pytest.mark.parametrize("pause", PAUSES)
async def test_the_session_has_gone_on_meanwhile(pause: str) -> None:
    paused = await taken_over(payment(0), *PAUSES[pause])
    world, bills = paused.world, [message(n, kind="account.bill") for n in (1, 2)]
    await take(world.west, *bills)

    assert await paused.wakes() == AlreadyDone()

    quiet = await healthy(payment(0), *bills)
    assert world.amounts() == [1, 2, 3]
    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")


@pytest.mark.parametrize("pause", PAUSES)
async def test_one_that_nobody_took_over_ends_its_own_claim(pause: str) -> None:
    paused = Paused(payment(0), *PAUSES[pause])
    await paused.stands_still()
    paused.world.clock.seconds += 10 * LEASE_OVER

    assert isinstance(await paused.wakes(), Processed)

    assert len(paused.world.outside.asked) == 1
    assert paused.world.outputs("east") == (await healthy(payment(0))).outputs("east")


async def test_the_one_that_took_over_is_not_disturbed_while_it_still_works() -> None:
    paused = Paused(payment(0))
    await paused.stands_still()
    world, second = paused.world, Gated(paused.world.journal)
    world.clock.seconds += LEASE_OVER

    async def pause_too() -> None:
        world.outside.after = nothing
        second.gate.clear()
        await second.gate.wait()

    world.outside.after = pause_too
    west = worker_with(world, "west", journal=second)
    working = asyncio.create_task(west.consumer.consume(payment(0)))
    await second.waits.wait()
    assert await paused.wakes() == Claimed()
    second.gate.set()

    assert isinstance(await working, Processed)
    assert world.amounts() == [1]
    assert world.entries()[0]["attempt"].startswith("west")
    assert await world.journal.sessions(SessionNeed.TAKE_OVER, limit=1) == []


# When a worker sleeps past the retention, it wakes with an old head or none, and commits nothing.

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
        made_from = await sleeper.dispatcher.prepare(head, message(position, amount=-1))
        assert await sleeper.give_entry(made_from) is None, position

    assert {entry["id"]: dict(entry) for entry in world.entries()} == before
    assert world.outputs("east") == world.outputs("west") == []


async def test_it_cannot_commit_on_an_old_head_though_its_write_is_applied_late() -> None:
    world, heads = await compacted_world()

    for head in heads[:-1]:
        sleeper = world.worker("east").consumer
        made_from = await sleeper.dispatcher.prepare(head, message(head.position + 1, amount=-1))
        ending = await sleeper.runner.run(
            open_entry(made_from), made_from.message, HandlerInput(head.state or {})
        )
        appended = await world.journal.append(ending.entry)
        assert appended is WriteResult.ORPHANED, head.position


@pytest.mark.parametrize("sequence", [0, 1, MILESTONE_EVERY - 1, MILESTONE_EVERY, ENTRIES - 1])
async def test_its_message_is_found_to_be_done_and_it_goes_on(sequence: int) -> None:
    world, heads = await compacted_world()
    sleeper = world.worker("east").consumer
    sleeper.worker.remember_head("acc-7", heads[sequence - 1] if sequence else None, is_ours=True)

    assert await sleeper.consume(message(sequence)) == AlreadyDone()
    assert [int(entry["id"]) for entry in world.entries()] == [ENTRIES - 1]

    assert isinstance(await sleeper.consume(message(ENTRIES)), Processed)
    assert world.amounts() == list(range(1, ENTRIES + 2))
