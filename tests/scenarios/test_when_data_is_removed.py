"""A person erases a session's data, or deletes an entry by hand: the session goes on."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from functions.http.operate import carry_out
from shared.domain.errors import NotAllowed, NotOpen
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Parked, Processed
from shared.ports import SessionNeed
from shared.storage.entries import position_id
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.asking import ask
from tests.business import healthy
from tests.crashes import rest, sent
from tests.world import SKIP, World, message, take

# When a person is erased, nothing of the data is left, and the session goes on.

ERASE = ResolutionRequest(ResolutionAction.ERASE, "Ada", "asked to be forgotten")
SECRET = 481_516


def secret(sequence: int, kind: str = "account.bill") -> Message:
    return message(sequence, SECRET, kind=kind)


def kept(world: World) -> str:
    """Everything that the store holds of the session."""
    return json.dumps(list(world.journal.partitions["acc-7"].values()))


async def settle(worker: Services) -> None:
    """Let acknowledgements that wait for a next entry be recorded."""
    await worker.recovery.consumer.dispatcher.acknowledgements.record_session("acc-7")


async def filled(count: int = 3) -> World:
    """A session with so many secrets."""
    world = World()
    await take(world.east, *map(secret, range(count)))
    await settle(world.east)
    assert str(SECRET) in kept(world)
    return world


async def test_nothing_of_the_data_is_left_and_copies_are_still_copies() -> None:
    world = await filled(230)

    entry = await world.east.resolver.resolve("acc-7", ERASE)

    assert kept(world).count(str(SECRET)) == 0
    (left,) = world.entries()
    assert (left["resolution"]["who"], left["resolution"]["action"]) == ("Ada", "erase")
    assert entry.position == 230
    assert await world.west.consumer.consume(secret(7)) == AlreadyDone()
    # A worker that remembers what was erased, and one that does not, go on with the next number.
    for worker, sequence in ((world.east, 230), (world.west, 231), (world.worker("east"), 232)):
        await worker.consumer.consume(message(sequence))
    assert world.amounts() == [231, 232, 233]


async def test_outputs_keep_their_numbers() -> None:
    world = await filled()

    await world.east.resolver.resolve("acc-7", ERASE)
    await world.west.consumer.consume(message(3, kind="account.bill"))

    sent = world.bus.messages("east", "out")
    assert [one.number.sequence for one in sent if one.number] == [0, 1, 2, 3]


async def test_when_the_worker_dies_between_erasing_and_removing_it_can_be_repeated() -> None:
    world = await filled()
    world.journal.fault_plan.plan("compact", CallFault.KILLED_BEFORE)

    with pytest.raises(ProcessKilled):
        await world.east.resolver.resolve("acc-7", ERASE)
    await world.west.resolver.resolve("acc-7", ERASE)

    assert kept(world).count(str(SECRET)) == 0
    assert len(world.entries()) == 1


@pytest.mark.parametrize(
    ("last", "in_the_way"),
    [(secret(3, "account.burn"), "halted"), (secret(4), "parked"), (secret(3), "pending")],
)
async def test_what_still_waits_is_ended_first(last: Message, in_the_way: str) -> None:
    world = await filled()
    world.bus.unavailable.update({"west"} if in_the_way == "pending" else ())
    await world.east.consumer.consume(last)
    await settle(world.east)
    before = kept(world)

    with pytest.raises(NotOpen, match=in_the_way):
        await world.east.resolver.resolve("acc-7", ERASE)

    assert kept(world) == before


async def test_a_fault_that_was_skipped_is_erased_with_its_body() -> None:
    world = await filled()
    await world.east.consumer.consume(secret(3, "account.burn"))
    await world.east.resolver.resolve("acc-7", SKIP)
    await settle(world.east)

    await world.east.resolver.resolve("acc-7", ERASE)

    assert kept(world).count(str(SECRET)) == 0


async def test_when_several_erase_at_once_there_is_one_entry() -> None:
    world = await filled()
    by_bob = replace(ERASE, who="Bob")

    answers = await asyncio.gather(
        *(worker.resolver.resolve("acc-7", ERASE) for worker in (world.east, world.west) * 3),
        world.worker("west").resolver.resolve("acc-7", by_bob),
        return_exceptions=True,
    )

    (left,) = world.entries()
    who = left["resolution"]["who"]
    refused = [one for one in answers if isinstance(one, NotOpen)]
    assert {one.position for one in answers if isinstance(one, Entry)} == {3}
    assert len(refused) == (1 if who == "Ada" else 6)
    assert f"was erased by {who!r}: asked to be forgotten" in str(refused[0])
    assert kept(world).count(str(SECRET)) == 0


async def test_when_another_person_repeats_it_after_a_crash_the_rest_is_removed_all_the_same() -> (
    None
):
    world = await filled()
    world.journal.fault_plan.plan("compact", CallFault.KILLED_BEFORE)
    with pytest.raises(ProcessKilled):
        await world.east.resolver.resolve("acc-7", ERASE)

    with pytest.raises(NotOpen, match="was erased by 'Ada'"):
        await world.west.resolver.resolve("acc-7", replace(ERASE, who="Bob"))

    assert kept(world).count(str(SECRET)) == 0
    assert len(world.entries()) == 1


async def test_when_the_session_is_used_again_it_can_be_erased_again() -> None:
    world = await filled()
    await world.east.resolver.resolve("acc-7", ERASE)
    await world.east.consumer.consume(secret(3))
    await settle(world.east)

    entry = await world.east.resolver.resolve("acc-7", ERASE)

    assert entry.position == 5
    assert kept(world).count(str(SECRET)) == 0


@pytest.mark.parametrize("action", ["erase", "set-state"])
async def test_when_there_is_no_such_session_it_is_said_by_name(action: str) -> None:
    decision: dict[str, Any] = {"action": action, "who": "Ada", "why": "asked"}
    decision |= {"body": {"amounts": []}} if action == "set-state" else {}

    response = await carry_out(
        World().east, ask(json.dumps(decision).encode(), route={"session": "acc-8"})
    )

    problem = json.loads(response.get_body())
    assert (response.status_code, problem["type"]) == (404, "UnknownSession")
    assert problem["detail"] == "there is nothing of session 'acc-8'"


async def test_the_journal_of_a_saga_is_not_erased() -> None:
    with pytest.raises(NotAllowed):
        await World().east.resolver.resolve("saga:order-1", ERASE)


# When an entry is deleted by hand, what is lost is what the page says.

BILLS = [message(n, kind="account.bill") for n in range(4)]


async def leave_pending(world: World, count: int) -> None:
    """So many bills, none of which the west has."""
    with world.without("west"):
        await take(world.east, *BILLS[:count])
    world.east = world.worker("east")


def delete(world: World, position: int) -> None:
    """Delete an entry in the portal."""
    del world.journal.partitions["acc-7"][position_id(position)]


async def test_an_older_entrys_pending_outputs_are_lost_and_nothing_else(world: World) -> None:
    await leave_pending(world, 3)
    delete(world, 1)

    await rest(world)
    assert isinstance(await world.east.consumer.consume(BILLS[3]), Processed)

    assert world.amounts() == [1, 2, 3, 4]
    east = sent(world, "east")
    assert sent(world, "west") == [east[0], east[2], east[3]]


async def test_the_newest_entrys_message_is_missing_until_it_is_sent_again(world: World) -> None:
    await leave_pending(world, 3)
    delete(world, 2)

    parked, done = await take(world.east, BILLS[3], BILLS[2])
    await rest(world)

    assert parked == Parked()
    assert isinstance(done, Processed)
    assert world.amounts() == [1, 2, 3, 4]
    assert sent(world, "east") == sent(world, "west") == (await healthy(*BILLS)).outputs("east")


async def test_a_message_whose_parking_was_deleted_is_parked_again(world: World) -> None:
    await take(world.east, BILLS[0], BILLS[2])
    delete(world, 1)
    world.east = world.worker("east")

    parked, done = await take(world.east, BILLS[2], BILLS[1])

    assert parked == Parked()
    assert isinstance(done, Processed)
    assert world.amounts() == [1, 2, 3]
    assert await world.journal.sessions(SessionNeed.DRAINING, limit=1) == []
