"""A worker that slept longer than entries are kept wakes with an old head, or with none at all."""

import pytest

from shared.domain.handler import HandlerInput
from shared.domain.journal import Entry
from shared.domain.next_entry import open_entry
from shared.engine.consume.outcomes import AlreadyDone, Processed
from shared.ports import WriteResult
from shared.storage.documents import MILESTONE_EVERY
from tests.world import POLICY, World, message

ENTRIES = MILESTONE_EVERY + 5


async def compacted_world() -> tuple[World, list[Entry]]:
    """A session whose first entries were removed, and every entry it ever had."""
    world = World()
    for sequence in range(ENTRIES):
        await world.west.consumer.consume(message(sequence))
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
