"""A handler calls the outside in steps: what is known of each outlives its worker."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import product

import pytest

from shared.domain.errors import NotOpen
from shared.domain.handler import Context, Handlers, Kind, OnFault
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.standstill import StandstillKind
from shared.domain.steps import NotDone, OnUnknown, StepFailed
from shared.engine.consume.outcomes import Faulted, Parked, Processed
from shared.engine.handle.limit import HandlerLoops
from shared.testkit.memory_store import VirtualClock
from tests.business import LEASE_OVER, OrderedClock, nothing
from tests.crashes import sent
from tests.provider import (
    BUY,
    KINDS,
    POLICIES,
    RECEIPTS,
    STEPS,
    Buy,
    Provider,
    Purchase,
    bought,
    decide_unknown,
    happened,
    not_happened,
    purchases,
)
from tests.world import POLICY, RETRY, SKIP, World, in_place_of, message


class Fast(VirtualClock):
    """A clock of a run that is over before its claim is renewed."""

    async def sleep(self, seconds: float) -> None:
        """Let this much time pass, but for what is waited for between two renewals."""
        if seconds >= POLICY.lease_seconds / 3:
            await asyncio.Event().wait()
        await super().sleep(seconds)


def world_of(provider: Provider, policy: str = "ask", attempts: int = 3) -> World:
    return World(OrderedClock(), handlers=purchases(provider, policy, attempts))


# Undisturbed.


@pytest.mark.parametrize(("kind", "policy"), [*product(KINDS, POLICIES)])
async def test_each_step_is_done_once_and_its_result_is_used(kind: str, policy: str) -> None:
    provider = Provider()
    world = world_of(provider, policy)

    assert isinstance(await world.east.consumer.consume(replace(BUY, type=kind)), Processed)

    assert provider.names == list(STEPS)
    assert bought(world) == RECEIPTS
    (entry,) = world.entries()
    keys = dict(provider.done)
    assert sorted((s["name"], s["key"], s["status"]) for s in entry["steps"]) == sorted(
        (name, keys[name], "done") for name in STEPS
    )
    assert "result" not in entry["steps"][0]
    assert len(set(keys.values())) == len(STEPS)


# The worker dies in the middle of a step, before or after it took effect.


@pytest.mark.parametrize(
    ("kind", "policy", "step", "when"), [*product(KINDS, POLICIES, range(5), ("before", "after"))]
)
async def test_when_its_worker_dies_in_a_step(kind: str, policy: str, step: int, when: str) -> None:
    provider = Provider(knows_keys=policy == "repeat")
    world, asked = world_of(provider, policy, attempts=9), asyncio.Event()

    async def hang() -> None:
        if provider.calls[-1] == STEPS[step]:
            asked.set()
            await asyncio.Event().wait()

    setattr(provider, when, hang)
    dying = asyncio.ensure_future(world.east.consumer.consume(replace(BUY, type=kind)))
    await asked.wait()
    dying.cancel()
    await asyncio.wait([dying])
    setattr(provider, when, nothing)
    world.clock.seconds += LEASE_OVER
    world.east = world.worker("east")

    outcome = await world.west.consumer.consume(replace(BUY, type=kind))

    if policy == "halt":
        assert isinstance(outcome, Faulted)
        assert world.entries()[-1]["unknown"] == [STEPS[step]]
        assert await decide_unknown(world, provider) == 1
    assert bought(world) == RECEIPTS
    assert sorted(provider.names) == sorted(STEPS)
    assert provider.looked_up == ([STEPS[step]] if policy == "ask" else [])
    # What was known is not called again.
    again = [name for name in STEPS if provider.calls.count(name) > 1]
    asks_again = policy == "repeat" or when == "before"
    assert again == ([STEPS[step]] if asks_again else [])


# An owner that was only slow: its step ends after another worker took over.


async def test_when_a_slow_owner_comes_back_it_begins_no_step_and_its_result_is_dropped() -> None:
    provider = Provider()
    world, asked, go_on = world_of(provider, attempts=9), asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        if provider.calls == ["reserve", "charge"]:
            asked.set()
            await go_on.wait()

    provider.after = hang
    slow = asyncio.ensure_future(world.east.consumer.consume(BUY))
    await asked.wait()
    provider.after = nothing
    # It writes nothing meanwhile, as a machine that stands still.
    world.clock.seconds += LEASE_OVER
    assert isinstance(await world.west.consumer.consume(BUY), Processed)
    called = list(provider.calls)
    go_on.set()
    await slow

    assert provider.calls == called
    assert provider.names == list(STEPS)
    assert bought(world) == RECEIPTS
    assert sent(world, "east") == sent(world, "west")


async def test_when_noting_a_step_outlasts_the_lease_it_is_asked_for_first() -> None:
    provider = Provider()
    world = World(Fast(), handlers=purchases(provider))

    @in_place_of(world.journal, "replace", once=True)
    async def stand_still(replaced: Callable[..., Awaitable[object]], *call: object) -> object:
        written = await replaced(*call)
        world.clock.seconds += LEASE_OVER
        return written

    # It takes its own claim over, as anybody could have done meanwhile, and asks.
    assert isinstance(await world.east.consumer.consume(BUY), Processed)

    assert provider.calls == list(STEPS)
    assert provider.looked_up == ["reserve"]


async def test_when_a_step_is_unknown_what_runs_beside_it_ends_and_begins_nothing_more() -> None:
    provider, handlers, failed = Provider(), Handlers(), asyncio.Event()

    async def charge(*, key: str) -> str:
        failed.set()
        raise ConnectionResetError("gone")

    async def ship(*, key: str) -> str:
        await failed.wait()
        for _ in range(50):
            await asyncio.sleep(0)
        return "shipped"

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL)
    async def buy(purchase: Purchase, _: Buy, context: Context) -> Purchase:
        async def ship_and_tell() -> None:
            await context.step("ship", ship)
            # No note has to be written first, so nothing else would keep it from being called.
            await context.step("tell", provider.act("tell"), "book", on_unknown=OnUnknown.REPEAT)

        await asyncio.gather(context.step("charge", charge), ship_and_tell())
        return purchase

    world = World(Fast(), handlers=handlers)
    assert isinstance(await world.east.consumer.consume(BUY), Faulted)
    for _ in range(100):
        await asyncio.sleep(0)

    assert provider.calls == []
    known = {one["name"]: one["status"] for one in world.entries()[0]["steps"]}
    assert known == {"charge": "begun", "ship": "done"}


# What a call says.


def one_step(call: object, **options: object) -> Handlers:
    """A handler of one step, which catches whatever can be caught."""
    handlers = Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL, on_fault=OnFault.SKIP)
    async def buy(_: Purchase, __: Buy, context: Context) -> Purchase:
        try:
            return Purchase(receipts=[await context.step("charge", call, **options)])  # type: ignore[arg-type]
        except ValueError as error:
            return Purchase(refused=[str(error)])

    return handlers


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), SystemExit(1), ValueError("odd")])
@pytest.mark.parametrize("policy", [OnUnknown.HALT, OnUnknown.REPEAT])
async def test_when_a_call_raises_it_may_have_happened(
    error: BaseException, policy: OnUnknown
) -> None:
    calls: list[str] = []

    async def charge(*, key: str) -> str:
        calls.append(key)
        if len(calls) < 3 or policy is OnUnknown.HALT:
            raise error
        return "paid"

    world = World(OrderedClock(), handlers=one_step(charge, on_unknown=policy))
    await world.east.consumer.consume(BUY)

    if policy is OnUnknown.REPEAT:
        assert (bought(world), len(calls), len(set(calls))) == (["paid"], 3, 1)
        return
    # The type skips its faults, and still its session waits: a person has to say what happened.
    (fault,) = world.entries()
    assert (fault["unknown"], len(calls)) == (["charge"], 1)
    assert type(error).__name__ in fault["reason"]
    behind = replace(message(1, kind="buy"), body=BUY.body)
    assert await world.east.consumer.consume(behind) == Parked()
    assert len(calls) == 1


async def test_when_a_call_raises_not_done_it_is_made_again_and_then_the_handler_is_told() -> None:
    provider = Provider()
    refuses = {"charge": 2, "tell": 3}

    async def refuse() -> None:
        name = provider.calls[-1]
        if provider.calls.count(name) <= refuses.get(name, 0):
            raise NotDone("declined")

    provider.before = refuse
    world = world_of(provider, "halt")

    assert isinstance(await world.east.consumer.consume(BUY), Processed)

    assert provider.names == ["reserve", "charge", "ship", "book"]
    assert bought(world) == [r for r in RECEIPTS if not r.startswith("tell")]
    assert world.entries()[-1]["state"]["refused"] == ["tell"]
    tell = next(s for s in world.entries()[-1]["steps"] if s["name"] == "tell")
    assert (tell["status"], tell["reason"]) == ("failed", "NotDone: declined")


async def test_when_a_failed_step_ends_the_message_a_retry_tries_it_and_no_other() -> None:
    calls: list[str] = []
    handlers, is_open = Handlers(), False

    async def reserve(*, key: str) -> str:
        calls.append("reserve")
        return "r"

    async def charge(*, key: str) -> str:
        calls.append("charge")
        if not is_open:
            raise NotDone("closed")
        return "c"

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL)
    async def buy(_: Purchase, __: Buy, context: Context) -> Purchase:
        first = await context.step("reserve", reserve)
        return Purchase(receipts=[first, await context.step("charge", charge, attempts=2)])

    world = World(OrderedClock(), handlers=handlers)
    assert isinstance(await world.east.consumer.consume(BUY), Faulted)
    assert calls == ["reserve", "charge", "charge"]
    assert world.entries()[0]["reason"] == (
        "StepFailed: step 'charge' was not done: NotDone: closed"
    )
    is_open = True
    await world.west.resolver.resolve("acc-7", RETRY)

    assert calls == ["reserve", "charge", "charge", "charge"]
    assert bought(world) == ["r", "c"]


# A step that may be repeated is not written down before its call, so what one call says of itself
# says nothing of the calls before it.


class Refusing(Provider):
    """A provider that did the first call, whose answer is lost, and refuses every other one."""

    async def charge(self, *, key: str) -> str:
        self.calls.append(key)
        if len(self.calls) == 1:
            await self.after()
        raise NotDone("429")


async def test_when_an_earlier_call_may_have_happened_a_refused_repetition_is_no_failure() -> None:
    provider = Refusing()

    async def break_off() -> None:
        raise ConnectionResetError("gone")

    provider.after = break_off
    world = World(OrderedClock(), handlers=catching(provider))
    assert isinstance(await world.east.consumer.consume(BUY), Faulted)
    reason = world.entries()[-1]["reason"]
    assert reason.startswith("StepUnknown: step 'charge' may have happened, key ")
    assert reason.endswith(": NotDone: 429")

    # A person's retry knows no more of it.
    await world.west.resolver.resolve("acc-7", RETRY)
    assert world.entries()[-1]["status"] == "faulted"
    assert world.entries()[-1]["reason"] == reason
    assert len(provider.calls) == 6


async def test_when_its_first_owner_may_have_called_a_refused_repetition_is_no_failure() -> None:
    provider, asked = Refusing(), asyncio.Event()

    async def hang() -> None:
        asked.set()
        await asyncio.Event().wait()

    provider.after = hang
    world = World(OrderedClock(), handlers=catching(provider))
    dying = asyncio.ensure_future(world.east.consumer.consume(BUY))
    await asked.wait()
    dying.cancel()
    await asyncio.wait([dying])
    world.clock.seconds += LEASE_OVER

    assert isinstance(await world.west.consumer.consume(BUY), Faulted)
    assert "charge' may have happened" in world.entries()[-1]["reason"]


async def test_when_every_call_was_refused_a_step_that_may_be_repeated_has_failed() -> None:
    provider = Refusing()
    world = World(OrderedClock(), handlers=catching(provider))

    assert isinstance(await world.east.consumer.consume(BUY), Processed)
    assert world.entries()[-1]["state"]["refused"] == ["charge"]


def catching(provider: Refusing) -> Handlers:
    """A handler that goes another way where its step surely did not happen."""
    handlers = Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL, attempts=9)
    async def buy(_: Purchase, __: Buy, context: Context) -> Purchase:
        try:
            await context.step("charge", provider.charge, on_unknown=OnUnknown.REPEAT)
        except StepFailed as failed:
            return Purchase(refused=[failed.step])
        return Purchase()

    return handlers


async def test_when_a_call_takes_longer_than_its_limit_it_may_have_happened() -> None:
    async def charge(*, key: str) -> str:
        await asyncio.Event().wait()
        return key

    world = World(OrderedClock(), handlers=one_step(charge, seconds=0.01))
    await world.east.consumer.consume(BUY)

    (fault,) = world.entries()
    assert fault["unknown"] == ["charge"]
    assert fault["reason"].endswith("TookTooLong: took more than 0.01 s")


@pytest.mark.parametrize("policy", [OnUnknown.HALT, OnUnknown.REPEAT])
@pytest.mark.parametrize("result", [{1, 2}, float("nan"), "x" * 800_000])
async def test_when_a_result_cannot_be_kept_a_person_gives_another(
    result: object, policy: OnUnknown
) -> None:
    calls: list[str] = []

    async def charge(*, key: str) -> object:
        calls.append(key)
        return result

    world = World(OrderedClock(), handlers=one_step(charge, on_unknown=policy))
    await world.east.consumer.consume(BUY)
    assert world.entries()[-1]["unknown"] == ["charge"]
    await world.west.resolver.resolve("acc-7", happened("charge", "receipt 7"))

    assert (bought(world), len(calls)) == (["receipt 7"], 1)


async def test_a_call_that_is_not_async_has_a_thread() -> None:
    def charge(amount: int, *, key: str) -> list[object]:
        return [amount, key]

    handlers = Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL)
    async def buy(_: Purchase, __: Buy, context: Context) -> Purchase:
        paid = await context.step("charge", charge, 7, key="order 12")
        return Purchase(receipts=list(map(str, paid)))

    world = World(handlers=handlers)
    await world.east.consumer.consume(BUY)

    assert bought(world) == ["7", "order 12"]


# What a person says.


async def unknown_world() -> tuple[World, Provider]:
    """A world in which nobody knows whether the second step happened."""
    provider = Provider()

    async def break_off() -> None:
        if provider.calls == ["reserve", "charge"]:
            raise ConnectionResetError("gone")

    provider.after = break_off
    world = world_of(provider, "halt")
    assert isinstance(await world.east.consumer.consume(BUY), Faulted)
    return world, provider


@pytest.mark.parametrize("did", [True, False])
async def test_what_a_person_says_is_recorded_and_the_handler_goes_on(did: bool) -> None:
    world, provider = await unknown_world()
    (found,) = (await world.east.standstills.find(limit=9)).standstills
    assert (found.kind, found.steps) == (StandstillKind.UNKNOWN, ("charge",))

    verb = happened("charge", "charge book") if did else not_happened("charge")
    await world.west.resolver.resolve("acc-7", verb)

    assert bought(world) == RECEIPTS
    assert provider.calls.count("charge") == (1 if did else 2)
    assert provider.calls.count("reserve") == 1
    said = world.entries()[-1]["resolution"]
    assert (said["action"], said["who"], said["at"]) == (verb.action.value, "Ada", 0)
    assert (await world.east.standstills.find(limit=9)).standstills == ()


async def test_a_step_that_may_have_happened_is_not_repeated_by_a_retry_or_an_edit() -> None:
    world, provider = await unknown_world()

    edit = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"item":"pen"}')
    for decision in (RETRY, edit, happened("ship"), not_happened("reserve")):
        with pytest.raises(NotOpen):
            await world.west.resolver.resolve("acc-7", decision)
    assert provider.calls == ["reserve", "charge"]
    await world.west.resolver.resolve("acc-7", SKIP)

    assert world.entries()[-1]["status"] == "skipped"
    assert provider.calls == ["reserve", "charge"]


# A handler that asks for other steps than before, or for steps that it may not ask for.


def renamed(context: Context, provider: Provider) -> object:
    return context.step("debit", provider.act("debit"), "book")


def keyed(context: Context, provider: Provider) -> object:
    return context.step("charge", provider.act("debit"), "book", key="another")


@pytest.mark.parametrize(("change", "says"), [(renamed, "not ask any more"), (keyed, "the key")])
async def test_when_a_handler_was_changed_between_its_runs(change: object, says: str) -> None:
    world, provider = await unknown_world()
    changed = Handlers()

    @changed.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL)
    async def buy(_: Purchase, __: Buy, context: Context) -> Purchase:
        await context.step("reserve", provider.act("reserve"), "book")
        await change(context, provider)  # type: ignore[operator]
        return Purchase()

    world.handlers = changed
    await world.worker("west").resolver.resolve("acc-7", happened("charge", "charge book"))

    assert provider.names == ["reserve", "charge"]
    fault = world.entries()[-1]
    assert fault["status"] == "faulted"
    assert says in fault["reason"]


async def test_when_the_type_has_a_pure_handler_now_its_message_is_a_fault_again() -> None:
    world, provider = await unknown_world()
    world.handlers = Handlers()

    @world.handlers.register("buy", state=Purchase, body=Buy)
    def buy(_: Purchase, __: Buy, ___: Context) -> Purchase:
        return Purchase()

    await world.worker("west").resolver.resolve("acc-7", happened("charge", "charge book"))

    fault = world.entries()[-1]
    assert (fault["status"], provider.names) == ("faulted", ["reserve", "charge"])
    assert "step 'charge' and 'reserve', which began" in fault["reason"]
    assert [one["status"] for one in fault["steps"]] == ["done", "done"]


async def twice_the_same(context: Context, provider: Provider) -> None:
    for _ in range(2):
        await context.step("charge", provider.act("charge"), "book")


async def not_awaited(context: Context, provider: Provider) -> None:
    step = context.step("charge", provider.act("charge"), "book")
    step.close()  # type: ignore[attr-defined]


# Somebody has to hold a task, or it vanishes.
LEFT: list[asyncio.Future[object]] = []


async def left_running(context: Context, provider: Provider) -> None:
    began = asyncio.Event()

    async def hang() -> None:
        began.set()
        await asyncio.Event().wait()

    provider.before = hang
    step = context.step("charge", provider.act("charge"), "book")
    LEFT.append(asyncio.ensure_future(step))
    await began.wait()


async def nameless(context: Context, provider: Provider) -> None:
    await context.step("", provider.act("charge"), "book")


@pytest.mark.parametrize(
    ("ask_for", "says", "done"),
    [
        (twice_the_same, "two steps 'charge'", 1),
        (not_awaited, "does not await step 'charge'", 0),
        (left_running, "was under way when the handler returned", 0),
        (nameless, "ValueError: the name of a step has 1 to 64 characters", 0),
    ],
)
async def test_when_a_handler_asks_wrongly_its_message_is_a_fault(
    ask_for: object, says: str, done: int
) -> None:
    provider, handlers = Provider(), Handlers()

    @handlers.register("buy", state=Purchase, body=Buy, kind=Kind.EFFECTFUL, attempts=1)
    async def buy(purchase: Purchase, _: Buy, context: Context) -> Purchase:
        await ask_for(context, provider)  # type: ignore[operator]
        return purchase

    policy = replace(POLICY, handler_seconds=0.2)
    world = World(handlers=handlers, policy=policy)
    assert isinstance(await world.east.consumer.consume(BUY), Faulted)

    assert says in world.entries()[-1]["reason"]
    assert len(provider.done) == done


@pytest.mark.parametrize("kind", [Kind.PURE, Kind.IDEMPOTENT, Kind.EFFECTFUL])
async def test_steps_are_for_async_handlers_that_claim_their_session(kind: Kind) -> None:
    provider, handlers = Provider(), Handlers()
    state = {} if kind is Kind.IDEMPOTENT else {"state": Purchase}

    @handlers.register("buy", body=Buy, kind=kind, attempts=1, **state)  # type: ignore[arg-type]
    def buy(purchase: Purchase, _: Buy, context: Context) -> Purchase:
        context.step("charge", provider.act("charge"), "book")
        return purchase

    world = World(handlers=handlers)
    assert isinstance(await world.east.consumer.consume(BUY), Faulted)

    reason = world.entries()[-1]["reason"]
    assert reason == "TypeError: steps are for async handlers of Kind.EFFECTFUL"


# What a step costs.


@pytest.mark.parametrize(("policy", "writes"), [("repeat", 5), ("ask", 10), ("halt", 10)])
async def test_a_step_costs_a_read_and_a_write_for_each_note(policy: str, writes: int) -> None:
    world = World(Fast(), handlers=purchases(Provider(), policy))
    await world.east.consumer.consume(BUY)

    # One write to claim, one to end the claim, and the steps between them.
    assert world.journal.fault_plan.calls["append"] == 1
    assert world.journal.fault_plan.calls["replace"] == 1 + writes


async def test_steps_side_by_side_share_their_writes() -> None:
    world = World(Fast(), handlers=purchases(Provider(), "halt"))

    @in_place_of(world.journal, "replace")
    async def take_a_while(replaced: Callable[..., Awaitable[object]], *call: object) -> object:
        for _ in range(20):
            await asyncio.sleep(0)
        return await replaced(*call)

    await world.east.consumer.consume(replace(BUY, type="gather"))

    # Begun together and done together, but for the first of each; then the last step.
    assert world.journal.fault_plan.calls["replace"] == 1 + 2 + 2 + 2


# In an app handlers run in a loop of their own, and the journal is on the worker's.


@pytest.mark.parametrize(("kind", "policy"), [*product(KINDS, POLICIES)])
async def test_steps_are_the_same_to_a_handler_in_a_loop_of_its_own(kind: str, policy: str) -> None:
    provider = Provider()
    world = World(Fast(), handlers=purchases(provider, policy))
    world.east.consumer.runner.finish = HandlerLoops().finish

    assert isinstance(await world.east.consumer.consume(replace(BUY, type=kind)), Processed)

    assert sorted(provider.names) == sorted(STEPS)
    assert bought(world) == RECEIPTS


async def test_when_a_handler_is_cut_off_in_a_step_whoever_takes_over_asks() -> None:
    provider = Provider()

    async def hang() -> None:
        if provider.calls == ["reserve", "charge"]:
            await asyncio.Event().wait()

    provider.after = hang
    world = World(Fast(), handlers=purchases(provider))
    world.east = world.worker("east", replace(POLICY, handler_seconds=0.3))
    world.east.consumer.runner.finish = HandlerLoops().finish
    await world.east.consumer.consume(BUY)
    world.clock.seconds += LEASE_OVER
    assert isinstance(await world.west.consumer.consume(BUY), Processed)

    assert provider.names == list(STEPS)
    assert provider.looked_up == ["charge"]
    assert bought(world) == RECEIPTS
