"""Outputs are made again, or are staged beside the journal: they are the same, byte for byte."""

import json
import os
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from shared.domain.errors import OutcomeUnknown
from shared.domain.handler import Context, Handled, Handlers, Kind, Output
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.domain.outbox import EVERY_QUEUE, Staged
from shared.domain.standstill import StandstillKind
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Processed
from shared.ports import Document
from shared.storage import limits
from shared.storage.documents import STAGED_SECONDS, staged_ids
from shared.storage.limits import INLINE_BYTES_MAX
from shared.testkit.injected_faults import CallFault, ProcessKilled
from tests.business import healthy
from tests.crashes import rest, sent
from tests.programs import run_python
from tests.sized_outputs import WRITER, writing
from tests.sized_outputs import handlers as letter_handlers
from tests.standstills import shown
from tests.world import (
    LAG_SECONDS,
    Account,
    Amount,
    Receipt,
    World,
    in_place_of,
    message,
    sweep_later,
    take,
)

# When outputs are made again, on the state before, they have the same bytes.

prices = {"today": [7]}


class Quote(BaseModel):
    """What an amount costs at the price of the day."""

    cost: int
    quote: str
    lucky_number: int
    tags: dict[str, int]


def quote(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount and quote all of them at the price that was first looked up."""
    price = context.captured("price", lambda: prices["today"])[0]
    booked = Account(amounts=[*account.amounts, body.amount])
    quoted = Quote(
        cost=price * sum(booked.amounts),
        quote=context.new_id(),
        lucky_number=context.random.randrange(10**9),
        tags={name: len(name) for name in sorted({"red", "green", "blue", "amber"})},
    )
    return Handled(booked, (Output("account.quote", quoted),))


def handlers_with(handle: object = quote) -> Handlers:
    """The handlers of a deployment."""
    made = Handlers()
    register = made.register("quote", state=Account, body=Amount, kind=Kind.DETERMINISTIC)
    register(handle)  # type: ignore[type-var]
    return made


handlers = handlers_with()
QUOTES = [message(n, kind="quote") for n in range(3)]


@pytest.fixture
def world() -> World:
    """Two regions with a deterministic handler, and others that write letters."""
    return World(handlers=Handlers.joined([handlers, letter_handlers]))


@pytest.fixture(autouse=True)
def price_of_the_day() -> None:
    """Every test begins on the same day."""
    prices["today"] = [7]


async def leave_unsent(world: World, *quotes: Message) -> list[tuple[str, bytes]]:
    """Commit while the west is unavailable; the answer is what should have been sent."""
    quiet = World(handlers=handlers)
    await take(quiet.east, *quotes)
    await world.east.consumer.consume(quotes[0])
    with world.without("west"):
        await take(world.east, *quotes[1:])
    world.clock.seconds += LAG_SECONDS
    return quiet.outputs("east")


async def test_they_are_not_in_the_journal(world: World) -> None:
    assert isinstance(await world.east.consumer.consume(QUOTES[0]), Processed)

    (entry,) = world.entries()
    assert "batches" not in entry["outbox"]
    assert "lucky_number" not in json.dumps(entry)


async def test_a_region_that_missed_some_gets_the_same_bytes(world: World) -> None:
    expected = await leave_unsent(world, *QUOTES)
    prices["today"] = [99]

    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == world.outputs("east") == expected
    assert await world.pending() == []


async def test_what_was_captured_is_what_the_handler_first_saw(world: World) -> None:
    def careless(account: Account, body: Amount, context: Context) -> Handled[Account]:
        price = context.captured("price", lambda: prices["today"])
        price.append(body.amount)
        cost = Quote(cost=sum(price), quote=context.new_id(), lucky_number=0, tags={})
        return Handled(account, (Output("account.quote", cost),))

    world.handlers = handlers_with(careless)
    with world.without("west"):
        east = world.worker("east")
        await east.consumer.consume(QUOTES[0])
    world.clock.seconds += LAG_SECONDS

    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == world.outputs("east") != []
    assert prices == {"today": [7]}


async def test_a_late_duplicate_changes_and_sends_nothing_new(world: World) -> None:
    await take(world.east, *QUOTES)
    before = world.outputs("east")

    for arriving in reversed(QUOTES):
        for worker in (world.worker("east"), world.worker("west")):
            assert await worker.consumer.consume(arriving) == AlreadyDone()

    assert world.outputs("east") == world.outputs("west") == before
    assert world.amounts() == [1, 2, 3]


@pytest.mark.parametrize("seed", ["1", "2"])
def test_another_process_with_another_hash_seed_and_clock_makes_the_same_bytes(seed: str) -> None:
    here = outputs_made_again()

    program = f"from {__name__} import *; print(json.dumps(outputs_made_again()))"
    there = run_python(program, PYTHONHASHSEED=seed, TZ=f"Etc/GMT+{seed}")

    assert json.loads(there) == here
    assert len(here) == 3


def outputs_made_again() -> list[list[str]]:
    """The outputs of three messages, each made a second time by another worker."""
    import asyncio

    async def make_again() -> list[list[str]]:
        world = World(handlers=handlers)
        world.clock.seconds = float(os.environ.get("PYTHONHASHSEED") or 0) * 1_000
        await leave_unsent(world, *QUOTES)
        prices["today"] = [99]
        await world.worker("west").recovery.sweep()
        return [[m.id, m.body.decode()] for m in world.bus.messages("west", "out")]

    prices["today"] = [7]
    return asyncio.run(make_again())


async def test_other_bytes_are_never_sent_in_place_of_the_first_ones(world: World) -> None:
    def changed(account: Account, body: Amount, context: Context) -> Handled[Account]:
        receipt = Receipt(total=body.amount, receipt=context.new_id(), lucky_number=0)
        return Handled(account, (Output("account.quote", receipt),))

    expected = await leave_unsent(world, *QUOTES[:2])
    world.handlers = handlers_with(changed)
    await world.worker("west").recovery.sweep()
    assert world.outputs("west") == expected[:1]
    assert await world.pending() == []
    (blocked,) = await world.journal.blocked("acc-7")
    assert "come out otherwise than at first" in blocked.outbox.blocked["west"][EVERY_QUEUE]
    assert await shown(world.east) == [(StandstillKind.BLOCKED, "acc-7", 1)]

    world.handlers = handlers
    world.clock.seconds += LAG_SECONDS
    await world.worker("west").recovery.sweep()

    assert world.outputs("west") == expected


async def test_a_handler_that_now_fails_keeps_no_other_session_from_recovery(world: World) -> None:
    def fails(_: Account, __: Amount, ___: Context) -> Account:
        raise ZeroDivisionError("a bug")

    with world.without("west"):
        await world.east.consumer.consume(QUOTES[0])
        world.handlers = handlers_with(fails)
        await world.worker("east").consumer.consume(message(0, session="other", kind="quote"))
    world.clock.seconds += LAG_SECONDS

    swept = await world.worker("west").recovery.sweep()

    assert (swept.helped, swept.left) == (2, 0)
    (blocked,) = await world.journal.blocked("acc-7")
    assert "ZeroDivisionError: a bug" in blocked.outbox.blocked["west"][EVERY_QUEUE]
    assert len(world.bus.messages("west", "errors")) == 1


# When outputs are too large for an entry, they are staged, and belong to the entry that commits.

THREE_STAGES = [300_000, 600_000, 500_000]


def staged(world: World) -> list[Document]:
    """The staged documents of the writer that the store still has."""
    kept = world.journal.partitions[WRITER].values()
    return [d for d in kept if d["kind"] == "staged" and not world.journal.store.is_over(d)]


async def die_at(world: World, call: str) -> None:
    """A worker whose process ends at its first call of a kind, with three stages of letters."""

    async def killed(*_: object, **__: object) -> None:
        raise ProcessKilled(call)

    dying, place = world.worker("east"), world.bus if call == "send" else world.journal
    setattr(place, call, killed)
    with pytest.raises(ProcessKilled):
        await dying.consumer.consume(writing(THREE_STAGES))
    delattr(place, call)


def assert_all_sent(world: World) -> None:
    """Both regions have the three letters, in the same order."""
    assert sent(world, "east") == sent(world, "west")
    assert len(sent(world, "east")) == len(THREE_STAGES)


@pytest.mark.parametrize("sizes", [[700_000] * 4, [INLINE_BYTES_MAX], THREE_STAGES])
async def test_all_arrive_whole_in_order_in_both_regions(
    world: World, sizes: Sequence[int]
) -> None:
    outcome = await world.east.consumer.consume(writing(sizes))

    assert isinstance(outcome, Processed)
    assert isinstance(outcome.entry.outbox.location, Staged)
    texts = [b'"%s"' % (b"%c" % (ord("a") + n) * size) for n, size in enumerate(sizes)]
    for region in ("east", "west"):
        bodies = [m.body for m in world.bus.messages(region, "out")]
        assert all(text in body for text, body in zip(texts, bodies, strict=True))


async def test_the_stages_vanish_when_every_region_has_them(world: World) -> None:
    with world.without("west"):
        await world.east.consumer.consume(writing(THREE_STAGES))
        assert len(staged(world)) == 3
    await sweep_later(world, "west")

    assert staged(world) == []
    assert_all_sent(world)


async def test_whoever_is_killed_at_the_commit_leaves_stages_that_vanish(world: World) -> None:
    await die_at(world, "append")
    assert (len(staged(world)), world.entries(WRITER)) == (3, [])

    world.clock.seconds += STAGED_SECONDS

    assert staged(world) == []


async def test_whoever_is_killed_after_the_commit_leaves_them_to_the_sweep(world: World) -> None:
    quiet = await healthy(writing(THREE_STAGES))
    await die_at(world, "send")
    world.clock.seconds += STAGED_SECONDS

    await rest(world)

    assert world.outputs("east") == world.outputs("west") == quiet.outputs("east")
    assert staged(world) == []


async def test_what_another_worker_delivered_between_two_reads_is_not_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await die_at(world, "send")
    world.clock.seconds += STAGED_SECONDS

    @in_place_of(world.journal, "staged", once=True)
    async def read_too_late(read_staged: Any, session: str, location: Staged) -> Any:
        await rest(world)
        return await read_staged(session, location)

    await world.worker("east").recovery.sweep()

    assert len(world.outputs("east")) == len(world.outputs("west")) == len(THREE_STAGES)
    assert "are gone" not in caplog.text
    assert await world.pending() == []


async def test_an_attempt_whose_stages_are_gone_cannot_commit(world: World) -> None:
    late: list[object] = []

    @in_place_of(world.journal, "append", once=True)
    async def append_after_an_hour(append: Any, *arguments: object) -> object:
        world.clock.seconds += STAGED_SECONDS
        late.append(await append(*arguments))
        return late[0]

    outcome = await world.east.consumer.consume(writing(THREE_STAGES))

    assert [str(answer) for answer in late] == ["WriteResult.ORPHANED"]
    assert isinstance(outcome, Processed)
    assert outcome.entry.attempt.id != "east-1/1"
    assert_all_sent(world)


async def test_two_attempts_stages_do_not_mix(world: World) -> None:
    rival = world.worker("west")

    @in_place_of(world.journal, "stage", once=True)
    async def stage_before_a_rival(stage: Any, *arguments: object) -> None:
        await stage(*arguments)
        with world.without("east", "west"):
            await rival.consumer.consume(writing(THREE_STAGES))

    assert isinstance(await world.east.consumer.consume(writing(THREE_STAGES)), AlreadyDone)

    (entry,) = world.entries(WRITER)
    assert entry["attempt"].startswith("west")
    kept = {document["id"]: document["ttl"] for document in staged(world)}
    adopted = dict.fromkeys(staged_ids(Staged(entry["attempt"], 3)), -1)
    assert kept == adopted | dict.fromkeys(staged_ids(Staged("east-1/1", 3)), STAGED_SECONDS)
    await rest(world)
    assert_all_sent(world)


async def test_an_unknown_outcome_of_the_commit_deletes_nothing(world: World) -> None:
    world.journal.fault_plan.plan("append", *[CallFault.UNANSWERED] * 6)
    world.journal.fault_plan.plan("entry", *[CallFault.LOST] * 6)
    with pytest.raises(OutcomeUnknown):
        await world.east.consumer.consume(writing(THREE_STAGES))

    assert len(staged(world)) == 3
    world.journal.fault_plan.planned.clear()
    await rest(world)
    assert_all_sent(world)


async def test_a_refused_output_is_kept_for_people_after_the_payment(world: World) -> None:
    world.bus.largest = {("east", "out"): 550_000, ("west", "out"): 550_000}

    await world.east.consumer.consume(writing(THREE_STAGES))

    assert await world.pending() == []
    assert any("b" * 600_000 in str(document["batches"]) for document in staged(world))
    world.clock.seconds += 31 * 24 * 3600
    assert staged(world) == []


@pytest.mark.parametrize(
    ("arriving", "why"),
    [(writing([3], remember=3_000_000), "bytes"), (writing([5_000] * 81), "81 documents, over 80")],
    ids=["a state too large for the store", "more stages than one batch adopts"],
)
async def test_what_no_store_takes_is_a_fault_by_name(
    world: World, monkeypatch: pytest.MonkeyPatch, arriving: Message, why: str
) -> None:
    monkeypatch.setattr(limits, "STAGED_BYTES_MAX", 5_000)

    outcome = await world.east.consumer.consume(arriving)

    assert isinstance(outcome, Faulted)
    assert outcome.entry.status is Status.FAULTED
    assert why in (outcome.entry.reason or "")
    assert world.outputs("east") == world.outputs("west") == []
    assert len(world.reports()) == 1
