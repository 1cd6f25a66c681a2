"""Results of steps lie beside their claim: who takes it over reads them; at the end they go."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault, Output
from shared.domain.steps import (
    BESIDE_MAX,
    RESULT_BYTES_MAX,
    RESULT_INLINE_BYTES,
    Beside,
    NotDone,
    OnUnknown,
    StepRecord,
    keep_result,
)
from shared.engine.consume.outcomes import Faulted, Processed
from tests.business import LEASE_OVER, OrderedClock, nothing
from tests.crashes import sent
from tests.provider import (
    BUY,
    KINDS,
    RECEIPTS,
    STEPS,
    Bought,
    Buy,
    Provider,
    Purchase,
    beside,
    bought,
    happened,
    purchases,
)
from tests.world import RETRY, SKIP, World, in_place_of

LARGE = 5_000


def calling(calls: list[str], results: dict[str, object], outputs: int = 0) -> Handlers:
    """A handler of one step for each result, which keeps the digests of what it was given."""
    handlers = Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL)
    async def buy(_: Purchase, __: Buy, context: Context) -> Handled[Purchase]:
        async def call(name: str, *, key: str) -> object:
            calls.append(name)
            return results[name]

        async def step(name: str) -> object:
            return await context.step(name, call, name, on_unknown=OnUnknown.REPEAT)

        given = await asyncio.gather(*map(step, results))
        assert given == list(results.values())
        sold = [Output("bought", Bought(receipts=["x" * 200_000]))] * outputs
        return Handled(Purchase(receipts=["all"]), tuple(sold))

    return handlers


async def die_in(world: World, provider: Provider, step: str, kind: str = "buy") -> None:
    """Let the worker in the east end while a step is under way, and its lease run out."""
    asked = asyncio.Event()

    async def hang() -> None:
        if provider.calls[-1] == step:
            asked.set()
            await asyncio.Event().wait()

    provider.after = hang
    dying = asyncio.ensure_future(world.east.consumer.consume(replace(BUY, type=kind)))
    await asked.wait()
    for _ in range(50):
        await asyncio.sleep(0)
    dying.cancel()
    await asyncio.wait([dying])
    provider.after = nothing
    world.clock.seconds += LEASE_OVER
    world.east = world.worker("east")


@pytest.mark.parametrize("kind", KINDS)
async def test_what_was_put_beside_a_claim_is_read_by_who_takes_it_over(kind: str) -> None:
    provider = Provider(size=LARGE)
    world = World(OrderedClock(), handlers=purchases(provider, attempts=9))

    await die_in(world, provider, STEPS[3], kind)
    claim = world.entries()[-1]
    known = [step["name"] for step in claim["steps"] if step["status"] == "done"]
    assert len(beside(world)) == len(known) >= 3
    assert len(json.dumps(claim)) < LARGE
    assert isinstance(await world.west.consumer.consume(replace(BUY, type=kind)), Processed)

    assert bought(world) == RECEIPTS
    assert sorted(provider.names) == sorted(STEPS)
    assert [name for name in known if provider.calls.count(name) > 1] == []
    assert beside(world) == []
    world.clock.seconds += 3_600
    store = world.journal.store
    assert [one for one in store.partitions["acc-7"] if store.read("acc-7", one)] == [
        *("genesis", "000000000000")
    ]


async def test_when_a_slow_owner_ends_a_step_after_a_take_over_it_puts_nothing_beside() -> None:
    provider = Provider(size=LARGE)
    world = World(OrderedClock(), handlers=purchases(provider, attempts=9))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        if provider.calls == ["reserve", "charge"]:
            asked.set()
            await go_on.wait()

    provider.after = hang
    slow = asyncio.ensure_future(world.east.consumer.consume(BUY))
    await asked.wait()
    provider.after = nothing
    world.clock.seconds += LEASE_OVER
    assert isinstance(await world.west.consumer.consume(BUY), Processed)
    go_on.set()
    await slow

    assert beside(world) == []
    assert bought(world) == RECEIPTS
    assert sent(world, "east") == sent(world, "west")


@pytest.mark.parametrize("is_written", [True, False])
async def test_when_the_answer_to_a_note_is_lost_its_results_are_there_once(
    is_written: bool,
) -> None:
    provider = Provider(size=LARGE)
    world = World(OrderedClock(), handlers=purchases(provider, "repeat"))
    notes: list[object] = []
    lost: list[bool] = []

    @in_place_of(world.journal, "replace")
    async def lose(replaced: Callable[..., Awaitable[object]], *call: object) -> object:
        if len(call) > 2 and call[2].results:  # type: ignore[attr-defined]
            notes.append(call)
        if len(notes) == 2 and not lost:
            lost.append(True)
            if is_written:
                await replaced(*call)
            raise OutcomeUnknown("no answer")
        return await replaced(*call)

    assert isinstance(await world.east.consumer.consume(BUY), Processed)

    # Where it was written, that is seen without another write.
    assert len(notes) == 5 + (not is_written)
    assert provider.calls == list(STEPS)
    assert (bought(world), beside(world)) == (RECEIPTS, [])


# How a message ends.


def failing(on_fault: OnFault, is_open: list[bool]) -> Handlers:
    """A handler of a step with a large result, and one that surely does not happen."""
    handlers = Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL, on_fault=on_fault)
    async def buy(_: Purchase, __: Buy, context: Context) -> Purchase:
        async def read(*, key: str) -> str:
            is_open.append(False)
            return "r" * LARGE

        async def charge(*, key: str) -> str:
            if not is_open[0]:
                raise NotDone("closed")
            return "c"

        first = await context.step("read", read)
        return Purchase(receipts=[first, await context.step("charge", charge, attempts=1)])

    return handlers


async def test_a_fault_keeps_what_lies_beside_it_until_a_person_decides() -> None:
    is_open = [False]
    world = World(OrderedClock(), handlers=failing(OnFault.HALT, is_open))
    assert isinstance(await world.east.consumer.consume(BUY), Faulted)
    assert len(beside(world)) == 1
    is_open[0] = True
    await world.west.resolver.resolve("acc-7", RETRY)

    assert bought(world) == ["r" * LARGE, "c"]
    assert len(is_open) == 2, "it was read once"
    assert beside(world) == []


@pytest.mark.parametrize("on_fault", [OnFault.HALT, OnFault.SKIP])
async def test_nothing_is_left_of_a_message_that_is_skipped(on_fault: OnFault) -> None:
    world = World(OrderedClock(), handlers=failing(on_fault, [False]))
    await world.east.consumer.consume(BUY)
    if on_fault is OnFault.HALT:
        await world.west.resolver.resolve("acc-7", SKIP)

    assert world.entries()[-1]["status"] == ("skipped" if on_fault is OnFault.HALT else "faulted")
    assert beside(world) == []
    (kept, failed) = world.entries()[0]["steps"]
    assert (kept["name"], kept["beside"][1], failed["status"]) == ("read", LARGE + 2, "failed")


async def test_when_a_result_is_gone_a_person_gives_it_and_nothing_is_repeated() -> None:
    provider = Provider(size=LARGE)
    world = World(OrderedClock(), handlers=purchases(provider, "repeat", attempts=9))
    await die_in(world, provider, STEPS[2])
    del world.journal.partitions["acc-7"][beside(world)[0]]

    assert isinstance(await world.west.consumer.consume(BUY), Faulted)
    fault = world.entries()[-1]
    assert fault["unknown"] == ["reserve"]
    assert "the result of step 'reserve'" in fault["reason"]
    await world.west.resolver.resolve("acc-7", happened("reserve", RECEIPTS[0]))

    assert (bought(world), beside(world)) == (RECEIPTS, [])
    assert [provider.calls.count(name) for name in STEPS] == [1, 1, 2, 1, 1]


async def test_when_results_cannot_be_read_the_handler_does_not_begin() -> None:
    provider = Provider(size=LARGE)
    world = World(OrderedClock(), handlers=purchases(provider, attempts=1))
    await die_in(world, provider, STEPS[2])

    @in_place_of(world.journal, "result")
    async def refuse(*_: object) -> object:
        raise Unavailable("no answer", 1.0)

    called = list(provider.calls)
    await world.west.consumer.consume(BUY)
    assert provider.calls == called
    assert world.entries()[-1]["status"] == "working"
    del world.journal.result
    world.clock.seconds += LEASE_OVER
    assert isinstance(await world.east.consumer.consume(BUY), Processed)

    assert (bought(world), provider.names) == (RECEIPTS, list(STEPS))


# What fits.


def test_small_results_stay_in_the_claim() -> None:
    """They cost what they did, up to so many bytes of all."""
    known: dict[str, StepRecord] = {}
    for n in range(9):
        known[f"step {n}"] = keep_result(known, "k", "x" * (RESULT_INLINE_BYTES - 2), 3)

    assert [one.beside for one in known.values()] == [None] * 7 + [Beside(3, 4_096)] * 2
    assert keep_result({}, "k", "x" * (RESULT_INLINE_BYTES - 1), 3).beside == Beside(3, 4_097)
    assert keep_result(known, "k", "x", 3).beside is None


async def test_results_fit_beside_the_largest_message() -> None:
    small, large = "x" * (RESULT_INLINE_BYTES - 2), "x" * (RESULT_BYTES_MAX - 2)
    results: dict[str, object] = {**dict.fromkeys("1234567", small), "8": large, "9": large}
    calls: list[str] = []
    largest = replace(BUY, body=b'{"item":"' + b"x" * 999_980 + b'"}')
    world = World(OrderedClock(), handlers=calling(calls, results))

    assert isinstance(await world.east.consumer.consume(largest), Processed)

    assert sorted(calls) == sorted(results)
    assert (bought(world), beside(world)) == (["all"], [])


@pytest.mark.parametrize(
    ("results", "says"),
    [
        (["x" * RESULT_BYTES_MAX], "has 800002 bytes, over 800000"),
        (["x" * 700_000] * 6, "all have over 4194304 bytes"),
        (["x" * 10_000] * BESIDE_MAX + ["x" * 128_000, "x" * 8_000], "90 results before it"),
    ],
)
async def test_when_results_are_too_large_a_person_gives_less(
    results: list[object], says: str
) -> None:
    named = {f"step {n}": result for n, result in enumerate(results)}
    calls: list[str] = []
    world = World(OrderedClock(), handlers=calling(calls, named))

    assert isinstance(await world.east.consumer.consume(BUY), Faulted)
    fault = world.entries()[-1]
    (unknown,) = fault["unknown"]
    assert f"step {unknown!r} may have happened" in fault["reason"]
    assert says in fault["reason"]
    with pytest.raises(InvalidMessage, match="over 131072 bytes"):
        await world.west.resolver.resolve("acc-7", happened(unknown, "x" * 131_072))
    named[unknown] = "less"
    await world.west.resolver.resolve("acc-7", happened(unknown, "less"))

    assert (bought(world), beside(world)) == (["all"], [])
    assert sorted(calls) == sorted(named), "each was called once"


@pytest.mark.slow
async def test_when_results_and_outputs_are_too_many_for_one_batch_it_is_a_fault() -> None:
    results: dict[str, object] = {f"step {n}": "x" * LARGE for n in range(BESIDE_MAX)}
    world = World(OrderedClock(), handlers=calling([], results, outputs=40))

    assert isinstance(await world.east.consumer.consume(BUY), Faulted)
    assert "a batch of" in world.entries()[-1]["reason"]
    assert len(beside(world)) == BESIDE_MAX
    await world.west.resolver.resolve("acc-7", SKIP)

    assert beside(world) == []
