"""Entries that nothing needs any more are removed; whatever is still needed stays."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.adapters.injected_faults import CALL_ERRORS, CallFault
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Processed
from shared.engine.operate.compact import Compacted
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.storage.documents import GENESIS_ID, MILESTONE_EVERY
from tests.letters import WRITER, handlers, writing
from tests.world import LAG_SECONDS, POLICY, World, message

RETENTION = POLICY.retention_seconds
MANY = 2 * MILESTONE_EVERY + 10


async def consume(world: World, messages: Sequence[Message]) -> None:
    """Take messages in the east, and let what they owe be said."""
    for arriving in messages:
        await world.east.consumer.consume(arriving)


async def long_session(world: World, count: int = MANY) -> None:
    """A session with so many entries, all older than the retention."""
    await consume(world, [message(n) for n in range(count)])
    world.clock.seconds += RETENTION


def positions(world: World, session: str = "acc-7") -> list[int]:
    """The entries that are kept."""
    return [int(entry["id"]) for entry in world.entries(session)]


async def test_what_is_older_than_the_retention_goes_up_to_the_newest_milestone(
    world: World,
) -> None:
    await long_session(world)

    assert await world.east.compactor.compact() == Compacted(2 * MILESTONE_EVERY)

    assert positions(world) == list(range(2 * MILESTONE_EVERY, MANY))
    assert world.amounts() == list(range(1, MANY + 1))
    assert GENESIS_ID in world.journal.partitions["acc-7"]


async def test_nothing_younger_than_the_retention_goes(world: World) -> None:
    await long_session(world)
    world.clock.seconds -= 1

    assert await world.east.compactor.compact() == Compacted()

    assert len(positions(world)) == MANY


async def test_a_compacted_session_is_not_looked_at_again(world: World) -> None:
    await long_session(world)
    await world.east.compactor.compact()
    world.journal.fault_plan.calls.clear()

    assert await world.east.compactor.compact() == Compacted()

    assert dict(world.journal.fault_plan.calls) == {"sessions.compaction": 1}


async def test_the_head_is_never_lost(world: World) -> None:
    await long_session(world, MILESTONE_EVERY + 1)

    await world.east.compactor.compact()

    assert positions(world) == [MILESTONE_EVERY]
    await consume(world, [message(MILESTONE_EVERY + 1)])
    assert world.amounts() == list(range(1, MILESTONE_EVERY + 3))


async def test_one_run_removes_a_bounded_number_and_the_next_goes_on(world: World) -> None:
    await long_session(world, 1_050)

    first = await world.east.compactor.compact(entries_max=150)

    assert first.entries < 150 + 100
    assert positions(world)[0] == first.entries
    await world.east.compactor.compact()
    assert positions(world) == list(range(1_000, 1_050))


async def test_late_duplicates_of_what_was_removed_are_still_duplicates(world: World) -> None:
    await long_session(world)
    await world.east.compactor.compact()

    for sequence in (0, 1, MILESTONE_EVERY, MANY - 1):
        for region in ("east", "west"):
            outcome = await world.worker(region).consumer.consume(message(sequence))
            assert outcome == AlreadyDone()

    assert world.amounts() == list(range(1, MANY + 1))


async def test_an_unpaid_outbox_keeps_its_entry_and_all_after_it(world: World) -> None:
    await consume(world, [message(n) for n in range(50)])
    world.bus.unavailable = {"west"}
    await consume(world, [message(50, kind="account.bill")])
    await consume(world, [message(n) for n in range(51, MANY)])
    world.clock.seconds += RETENTION
    quiet = world.outputs("east")

    await world.east.compactor.compact()
    assert positions(world) == list(range(50, MANY))

    world.bus.unavailable = set()
    await world.west.recovery.sweep()
    world.clock.seconds += RETENTION
    await world.east.compactor.compact()
    assert world.outputs("west") == quiet != []
    assert positions(world)[0] == 2 * MILESTONE_EVERY


async def test_outputs_to_be_made_again_keep_the_state_before_them() -> None:
    world, quiet = World(handlers=handlers), World(handlers=handlers)
    again = [writing([n % 3], n, kind="write.again") for n in range(MANY)]
    await consume(quiet, again)
    await consume(world, again[:120])
    world.bus.unavailable = {"west"}
    await consume(world, again[120:])
    world.bus.unavailable = set()
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()
    assert positions(world, WRITER)[0] == 119
    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == world.outputs("east") == quiet.outputs("east")
    await world.east.compactor.compact()
    world.clock.seconds += RETENTION
    await world.east.compactor.compact()
    assert positions(world, WRITER)[0] == 2 * MILESTONE_EVERY


async def test_the_fault_of_a_halted_session_stays_until_it_is_resolved(world: World) -> None:
    await consume(world, [message(n) for n in range(50)])
    assert isinstance(await world.east.consumer.consume(message(50, kind="account.burn")), Faulted)
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    await consume(world, [message(n) for n in range(51, MANY)])
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()
    assert positions(world)[0] == 49
    await world.worker("east").resolver.resolve(
        "acc-7", ResolutionRequest(ResolutionAction.SKIP, who="ann", why="not needed")
    )

    assert world.amounts() == [n + 1 for n in range(MANY) if n != 50]


async def test_the_state_of_a_session_that_only_parks_stays(world: World) -> None:
    await consume(world, [message(0)])
    world.east.consumer.waits = replace(world.east.consumer.waits, gap_seconds=0)
    await consume(world, [message(n) for n in range(2, MANY)])
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()
    await world.worker("east").consumer.consume(message(1))

    assert world.amounts() == list(range(1, MANY + 1))


async def test_compaction_is_harmless_while_messages_are_committed(world: World) -> None:
    await long_session(world)
    append = world.journal.append
    appended = 0

    async def append_after_compaction(*arguments: object, **options: object) -> object:
        nonlocal appended
        appended += 1
        await world.west.compactor.compact()
        return await append(*arguments, **options)  # type: ignore[arg-type]

    world.journal.append = append_after_compaction  # type: ignore[assignment, method-assign]
    await consume(world, [message(n) for n in range(MANY, MANY + 150)])

    assert appended == 150
    assert world.amounts() == list(range(1, MANY + 151))


async def test_two_compactors_at_once_remove_nothing_that_is_needed(world: World) -> None:
    await long_session(world, 350)
    compact = world.journal.compact

    async def overtaken(session: str, freed: Sequence[int], passed: int | None) -> None:
        world.journal.compact = compact  # type: ignore[method-assign]
        await world.west.compactor.compact()
        await compact(session, freed, passed)

    world.journal.compact = overtaken  # type: ignore[assignment, method-assign]
    await world.east.compactor.compact()

    assert positions(world) == list(range(300, 350))
    assert world.amounts() == list(range(1, 351))


@pytest.mark.parametrize("fault", CALL_ERRORS)
async def test_a_batch_that_gets_no_answer_is_left_to_the_next_run(
    world: World, fault: CallFault
) -> None:
    await long_session(world)
    world.journal.fault_plan.plan("compact", fault)

    assert (await world.east.compactor.compact()).failed == 1
    assert (await world.east.compactor.compact()).failed == 0

    assert positions(world) == list(range(2 * MILESTONE_EVERY, MANY))
    assert await world.journal.milestone("acc-7", 0) is None


async def test_sessions_that_cannot_be_compacted_do_not_keep_others_from_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.engine.operate.compact.SESSIONS_MAX", 3)
    world.bus.unavailable = {"west"}
    for number in range(4):
        session = f"stuck-{number}"
        bill = message(0, session=session, kind="account.bill")
        await consume(world, [bill, *(message(n, session=session) for n in range(1, 110))])
    world.bus.unavailable = set()
    await long_session(world)

    removed = [(await world.east.compactor.compact()).entries for _ in range(2)]

    assert removed == [0, 2 * MILESTONE_EVERY]


async def test_a_session_that_another_worker_compacted_is_not_tried_for_ever(world: World) -> None:
    await long_session(world)
    world.journal.fault_plan.plan("compact", CallFault.REFUSED)
    await world.east.compactor.compact()
    assert world.east.compactor.failed.newest() == ["acc-7"]
    await world.west.compactor.compact()

    assert await world.east.compactor.compact() == Compacted()

    assert world.east.compactor.failed.newest() == []


async def test_the_owner_of_a_claim_at_a_milestone_still_finds_what_it_starts_from(
    world: World,
) -> None:
    await consume(world, [message(n) for n in range(MILESTONE_EVERY)])
    await consume(world, [message(MILESTONE_EVERY, kind="account.bill")])
    head = await world.journal.head("acc-7")
    assert head is not None
    # As an effectful handler's claim would lie there.
    document = world.journal.partitions["acc-7"][f"{MILESTONE_EVERY:012d}"]
    document |= {"status": Status.WORKING.value}
    del document["state"]
    world.clock.seconds += RETENTION

    await world.east.compactor.compact()

    assert positions(world) == [MILESTONE_EVERY - 1, MILESTONE_EVERY]


async def test_outputs_of_removed_entries_stay_delivered_once(world: World) -> None:
    bills = [message(n, kind="account.bill") for n in range(MANY)]
    for bill in bills:
        assert isinstance(await world.east.consumer.consume(bill), Processed)
    world.clock.seconds += RETENTION + LAG_SECONDS
    sent = world.outputs("east")

    await world.east.compactor.compact()
    for bill in bills[::20]:
        assert await world.worker("east").consumer.consume(bill) == AlreadyDone()
    await world.west.recovery.sweep()

    assert world.outputs("east") == world.outputs("west") == sent
    assert len(sent) == MANY
