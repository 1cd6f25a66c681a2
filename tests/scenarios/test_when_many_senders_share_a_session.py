"""Many producer groups send to one session: its entries stay small, and nothing is forgotten."""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from shared.domain import next_entry
from shared.domain.journal import Cursor, EvictedCursor
from shared.domain.message import Message, Number
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Parked, Processed, Refused
from shared.storage.entries import GENESIS_ID, cursor_id
from shared.testkit.regions import consume_together
from tests.business import LEASE_OVER, Outside, business, payment, plain
from tests.schedules import race
from tests.world import IMPATIENT, SKIP, World, message, require, take

SENDERS = [f"sender-{n}" for n in range(6)]


@pytest.fixture(autouse=True)
def two_cursors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries name the cursors of the two groups used last."""
    monkeypatch.setattr(next_entry, "CURSORS_MAX", 2)


@pytest.fixture
def world() -> World:
    """Two regions that do not wait for what is missing."""
    return World(policy=IMPATIENT)


def sent_by(group: str, sequence: int, amount: int | None = None, level: int = 0) -> Message:
    """A sender's n-th message; no two senders have the same amounts."""
    value = int(group[7:]) * 100 + sequence if amount is None else amount
    return message(sequence, value, group=group, level=level)


def rounds(count: int) -> list[Message]:
    """The senders' messages in turn, so that every cursor is evicted and used again."""
    return [sent_by(group, n) for n in range(count) for group in SENDERS]


async def consume(world: World, messages: Sequence[Message], region: str = "east") -> list[str]:
    """What becomes of each message, by the worker that has the region now."""
    return [type(one).__name__ for one in await take(getattr(world, region), *messages)]


def amounts(messages: Sequence[Message]) -> list[int]:
    """What the messages say."""
    return [json.loads(arriving.body)["amount"] for arriving in messages]


async def test_every_sender_is_taken_in_its_order_and_once_by_any_worker(world: World) -> None:
    sent = rounds(3)

    assert set(await consume(world, sent)) == {"Processed"}

    for region in ("east", "west"):
        assert set(await consume(world, sent, region)) == {"AlreadyDone"}
        fresh = world.worker(region).consumer
        assert {type(await fresh.consume(copy)) for copy in sent} == {AlreadyDone}
    assert world.amounts() == amounts(sent)


async def test_an_entry_names_the_groups_used_last_and_others_lie_beside_it(world: World) -> None:
    await consume(world, rounds(2))

    head = require(world.journal.newest("acc-7"))
    assert dict(head.cursors) == {group: Cursor(0, 2) for group in SENDERS[-2:]}
    assert head.has_evicted
    first = await world.journal.cursor("acc-7", SENDERS[0])
    assert first == EvictedCursor(Cursor(0, 2), ((1, 1), (2, 7)))
    assert await world.journal.cursor("acc-7", "nobody") is None
    beside = {i for i, d in world.journal.partitions["acc-7"].items() if d["kind"] != "entry"}
    assert beside == {GENESIS_ID, *(cursor_id(group) for group in SENDERS)}


async def test_entries_of_any_number_of_senders_are_equally_large(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_entry, "CURSORS_MAX", 64)
    hints = (message(0, group=f"session:device-{n:06d}", kind="account.hint") for n in range(600))
    await take(world.east, *hints)
    # What an entry says of its message and the error queue is the same for every one.
    sizes = [len(json.dumps(entry["cursors"])) for entry in world.entries()]

    assert max(sizes) == sizes[63] == sizes[599] < 64 * 55


async def test_a_session_of_few_senders_reads_no_cursor(world: World) -> None:
    sent = [sent_by(group, n) for n in range(5) for group in SENDERS[:2]]

    await consume(world, sent)
    await consume(world, sent, "west")

    assert world.journal.fault_plan.calls["cursor"] == 0
    assert not any(d["kind"] == "cursor" for d in world.journal.partitions["acc-7"].values())


async def test_a_new_sender_costs_two_point_reads_and_no_other_call(world: World) -> None:
    await consume(world, rounds(1))
    world.journal.fault_plan.calls.clear()

    await consume(world, [sent_by("sender-99", 0)])

    # Its first number is tried without a head where none is remembered; here one is.
    assert dict(world.journal.fault_plan.calls) == {"cursor": 2, "append": 1}


async def test_what_waits_for_an_evicted_senders_missing_message_is_drained(world: World) -> None:
    early = [sent_by(SENDERS[0], 2), sent_by(SENDERS[0], 1)]
    await consume(world, rounds(1))

    assert await consume(world, early[:1]) == ["Parked"]
    await consume(world, [sent_by(group, 1) for group in SENDERS[1:]])
    world.east = world.worker("east")
    assert await consume(world, early[1:]) == ["Processed"]

    assert world.amounts()[-2:] == [1, 2]
    assert set(await consume(world, [*early, *rounds(1)], "west")) == {"AlreadyDone"}


async def test_what_is_parked_beside_an_evicted_cursor_is_drained_later(world: World) -> None:
    await consume(world, rounds(1))
    await consume(world, [sent_by(SENDERS[0], 2)])
    # The missing message is committed by a worker that dies before it drains.
    world.east.consumer.drain = nothing  # type: ignore[assignment, method-assign]
    await consume(world, [sent_by(SENDERS[0], 1), *(sent_by(g, 1) for g in SENDERS[1:])])

    world.clock.seconds += LEASE_OVER
    await world.worker("west").recovery.sweep()

    assert world.amounts() == [*amounts(rounds(1)), 1, *(n * 100 + 1 for n in range(1, 6)), 2]


async def nothing(_: str, **__: object) -> None:
    """What a worker does that died."""


async def test_a_producer_that_was_fenced_before_the_eviction_stays_fenced(world: World) -> None:
    await consume(world, [sent_by(SENDERS[0], 0, level=1), *rounds(1)[1:]])

    refused = await world.worker("west").consumer.consume(sent_by(SENDERS[0], 1, level=0))

    assert isinstance(refused, Refused)
    assert await consume(world, [sent_by(SENDERS[0], 1, level=1)]) == ["Processed"]


async def test_other_content_under_an_evicted_senders_number_is_a_conflict(world: World) -> None:
    # So far apart that no page of entries holds both.
    sent = rounds(30)
    await consume(world, sent)

    for arriving in sent[::7]:
        worker = world.worker("east")
        other = replace(arriving, body=b'{"amount":-1}')
        assert isinstance(await worker.consumer.consume(other), Conflicting), arriving.number
        assert await worker.consumer.consume(arriving) == AlreadyDone()


async def test_content_is_compared_as_far_back_as_evictions_are_remembered(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_entry, "ENDS_MAX", 2)
    await consume(world, rounds(30))

    kept = require(await world.journal.cursor("acc-7", SENDERS[0]))
    assert [following for following, _ in kept.ends] == [29, 30]
    for sequence, found in ((29, Conflicting), (28, Conflicting), (2, AlreadyDone)):
        other = sent_by(SENDERS[0], sequence, -1)
        assert isinstance(await world.worker("east").consumer.consume(other), found)


async def test_messages_without_numbers_keep_their_place_among_many_senders(world: World) -> None:
    await consume(world, [plain(0, "account.add"), *rounds(2), plain(1, "account.add")])

    head = require(world.journal.newest("acc-7"))
    assert head.cursors["$arrivals"] == Cursor(0, 2)
    assert set(await consume(world, [plain(0, "account.add")], "west")) == {"AlreadyDone"}


async def test_a_fault_of_an_evicted_sender_is_resolved(world: World) -> None:
    await consume(world, rounds(1))
    poison = message(1, group=SENDERS[0], kind="account.burn")
    assert await consume(world, [poison]) == ["Faulted"]
    behind = [sent_by(group, 1) for group in SENDERS[1:]]
    assert set(await consume(world, behind)) == {"Parked"}

    await world.worker("west").resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [*amounts(rounds(1)), *amounts(behind)]
    assert set(await consume(world, [poison, sent_by(SENDERS[0], 0)])) == {"AlreadyDone"}
    assert await consume(world, [sent_by(SENDERS[0], 2)]) == ["Processed"]


async def test_an_evicted_sender_waits_beside_a_claim_and_is_drained_after_it() -> None:
    outside = Outside()
    world = World(policy=IMPATIENT, handlers=business(outside))
    await consume(world, rounds(1))
    waited: list[object] = []

    async def others_arrive() -> None:
        waited.extend(await take(world.west, sent_by(SENDERS[0], 1)))

    outside.before = others_arrive
    paid = replace(payment(0), number=Number("sender-9", 0, 0))
    assert isinstance(await world.east.consumer.consume(paid), Processed)

    assert waited == [Parked()]
    assert world.amounts() == [*amounts(rounds(1)), 1, 1]
    assert set(await consume(world, [paid, sent_by(SENDERS[0], 1)], "west")) == {"AlreadyDone"}


async def test_a_batch_of_many_senders_is_one_entry_where_their_cursors_have_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(next_entry, "CURSORS_MAX", 6)
    world = World(policy=IMPATIENT)
    others = [message(0, 7, group=f"other-{n}") for n in range(6)]
    await consume(world, [*rounds(1), *others])

    outcomes = await consume_together(world.east, [m for m in rounds(3) if m not in rounds(1)])

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert [len(entry["identities"]) for entry in world.entries()][12:] == [12]
    assert world.amounts()[12:] == amounts(rounds(3))[6:]
    assert set(await consume(world, [*rounds(3), *others], "west")) == {"AlreadyDone"}


async def test_a_batch_never_evicts_the_cursor_of_its_own_message(world: World) -> None:
    # The first batch begins the session, the second finds all cursors but two evicted.
    batches = [rounds(1), rounds(4)]

    for batch in batches:
        for worker in (world.worker("east"), world.worker("west"), world.worker("east")):
            await consume_together(worker, batch)

    assert world.amounts() == amounts(rounds(4))


async def test_a_head_with_more_cursors_than_it_may_have_loses_them_little_by_little(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(next_entry, "CURSORS_MAX", 1_000)
    many = [message(0, 5, group=f"old-{n}") for n in range(150)]
    await consume(world, many)
    monkeypatch.setattr(next_entry, "CURSORS_MAX", 64)

    await consume(world, [sent_by(SENDERS[0], n) for n in range(20)])

    head = require(world.journal.newest("acc-7"))
    assert len(head.cursors) == 64
    assert set(await consume(world, many, "west")) == {"AlreadyDone"}


async def test_two_workers_that_evict_each_others_cursors_take_every_message_once() -> None:
    # Both get everything, in the same order, and their first calls take turns in every way.
    sent = [*rounds(1)[:3], sent_by(SENDERS[0], 1), sent_by(SENDERS[1], 1)]
    for schedule in product((0, 1), repeat=9):
        world = World(policy=IMPATIENT)
        await consume(world, sent[:1])

        await race(world, schedule, sent, sent)

        assert world.amounts() == amounts(sent), schedule


async def test_workers_that_get_messages_in_any_order_take_each_sender_in_its_order() -> None:
    for seed in range(150):
        draw, sent = Random(seed), rounds(2)[:8]
        arrivals = [draw.sample(sent, len(sent)) for _ in range(2)]
        world = World(policy=IMPATIENT)

        await race(world, tuple(draw.choices((0, 1), k=60)), *arrivals)

        taken = world.amounts()
        assert sorted(taken) == sorted(amounts(sent)), seed
        for group in range(6):
            own = [amount for amount in taken if amount // 100 == group]
            assert own == sorted(own), seed
