"""What a client or a saga asks for calls the outside in steps: it ends, and is told how."""

import asyncio
from itertools import count
from typing import Any

import pytest
from pydantic import BaseModel

from functions.http.ingest import accept
from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault
from shared.domain.saga.plan import Command, Plan, Refusal, SagaState, Stage, Step
from shared.domain.saga.record import SagaKinds
from shared.domain.saga.walk import Activity
from shared.domain.standstill import StandstillKind
from shared.domain.steps import NotDone, StepFailed
from shared.engine.build import Services
from tests.asking import ask as request
from tests.asking import document
from tests.business import LEASE_OVER, OrderedClock, nothing
from tests.provider import POLICIES, Buy, Provider, Purchase, decide_unknown
from tests.saga_stage import Stage as SagaStage
from tests.standstills import listed
from tests.world import RETRY, World, in_place_of

NAMES = ["charge", "ship"]
PAID = ["charge book", "ship book"]


class Deeds(BaseModel):
    """What was done and undone, in order."""

    done: list[str] = []


def trips(
    provider: Provider,
    policy: str = "halt",
    *,
    answers: bool = True,
    on_fault: OnFault = OnFault.HALT,
) -> Handlers:
    """A saga of a room and a payment in two steps; whoever asks for the payment is answered.

    A step that failed is its handler's refusal, unless it `answers` nothing.
    """
    handlers = Handlers()
    kinds = SagaKinds(handlers)

    @kinds.register("trip.book", body=Buy)
    def book(trip: Buy, _: Context) -> Plan:
        def do(name: str, session: str) -> Stage:
            doing, undoing = (
                Command(session=session, type=kind, body=trip.model_dump())
                for kind in (name, f"{name}.undo")
            )
            return Stage(steps=(Step(name=name, do=doing, undo=undoing, tries=4),))

        return Plan(parts=(do("room", "room:1"), do("pay", "acc-7")))

    @handlers.register("room", state=Deeds, body=Buy)
    @handlers.register("room.undo", state=Deeds, body=Buy)
    def act(deeds: Deeds, _: Buy, context: Context) -> Deeds:
        return Deeds(done=[*deeds.done, context.message.type])

    @handlers.register("pay.undo", state=Purchase, body=Buy)
    def pay_back(purchase: Purchase, _: Buy, __: Context) -> Purchase:
        return Purchase(refused=purchase.receipts)

    @handlers.register(
        "pay", state=Purchase, body=Buy, kind=Kind.EFFECTFUL, on_fault=on_fault, attempts=9
    )
    async def pay(_: Purchase, body: Buy, context: Context) -> Handled[Purchase]:
        receipts = []
        for name in NAMES:
            on_unknown = provider.policy(name, policy)
            try:
                act = provider.act(name)
                receipts.append(await context.step(name, act, body.item, on_unknown=on_unknown))
            except StepFailed as failed:
                if not answers:
                    raise
                return Handled(Purchase(), answer=Refusal(refused=str(failed)))
        paid = Purchase(receipts=receipts)
        return Handled(paid, answer=paid)

    return handlers


async def ask(worker: Services, seconds: int = 10) -> tuple[int, dict[str, Any]]:
    """Ask for the payment, always under one key; the status and the document of the answer."""
    headers = {"Idempotency-Key": "k-1", "Prefer": f"wait={seconds}"}
    route, query = {"session": "acc-7"}, {"type": "pay"}
    response = await accept(
        worker, request('{"item":"book"}', headers=headers, route=route, query=query)
    )
    return response.status_code, document(response)


def breaking(provider: Provider, step: str) -> None:
    """Let the answer to a step be lost, once."""

    async def break_off() -> None:
        if provider.calls[-1] == step:
            provider.after = nothing
            raise ConnectionResetError("gone")

    provider.after = break_off


async def hanging(provider: Provider, step: str, when: str, work: asyncio.Future[Any]) -> None:
    """End a worker while a step is under way, before or after it took effect."""
    asked = asyncio.Event()

    async def hang() -> None:
        if provider.calls[-1] == step:
            asked.set()
            await asyncio.Event().wait()

    setattr(provider, when, hang)
    await asked.wait()
    work.cancel()
    await asyncio.wait([work])
    setattr(provider, when, nothing)


def refusing(provider: Provider, step: str) -> None:
    """Let a step surely not happen, until somebody lets it."""

    async def refuse() -> None:
        if provider.calls[-1] == step:
            raise NotDone("declined")

    provider.before = refuse


# A client.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("step", "when"), [("ship", "before"), ("charge", "after")])
async def test_when_the_worker_of_an_asker_dies_the_other_region_answers(
    policy: str, step: str, when: str
) -> None:
    provider = Provider(knows_keys=policy == "repeat")
    world = World(OrderedClock(), handlers=trips(provider, policy))
    await hanging(provider, step, when, asyncio.ensure_future(ask(world.east)))
    world.clock.seconds += LEASE_OVER
    status, said = await ask(world.west)
    if policy == "halt":
        assert (status, said["halts"]) == (422, True)
        assert f"step '{step}' may have happened" in said["detail"]
        assert await decide_unknown(world, provider) == 1
        status, said = await ask(world.west)

    assert (status, said["answer"]["receipts"]) == (200, PAID)
    assert provider.names == NAMES
    assert await ask(world.worker("east")) == (status, said)


async def test_when_nobody_knows_what_happened_every_asker_is_told_at_once() -> None:
    provider = Provider()
    world = World(OrderedClock(), handlers=trips(provider))
    breaking(provider, "ship")
    began = world.clock.seconds
    first = await ask(world.east)
    told = [first, await ask(world.west), await ask(world.worker("east"))]

    assert world.clock.seconds - began < 10
    (key,) = {key for name, key in provider.done if name == "ship"}
    for status, said in told:
        assert (status, said["position"], said["halts"]) == (422, 0, True)
        assert f"step 'ship' may have happened, key '{key}'" in said["detail"]
    assert await decide_unknown(world, provider) == 1

    status, said = await ask(world.west)
    assert (status, said["answer"]["receipts"], provider.calls) == (200, PAID, NAMES)


async def test_when_a_person_decides_while_an_asker_waits_it_is_answered() -> None:
    provider = Provider()
    world = World(OrderedClock(), handlers=trips(provider))
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def hang() -> None:
        if provider.calls[-1] == "ship":
            asked.set()
            await go_on.wait()

    provider.after = hang
    first = asyncio.ensure_future(ask(world.east))
    await asked.wait()
    # Its claim is another's, so it polls; nobody has answered when it begins to.
    slept = 0

    @in_place_of(world.clock, "sleep")
    async def decide_meanwhile(sleep: Any, seconds: float) -> None:
        nonlocal slept
        slept += 1
        if slept == 2:
            provider.after = nothing
            go_on.set()
            await first
        await sleep(seconds)

    status, said = await ask(world.west)

    assert (status, said["answer"]["receipts"], provider.calls) == (200, PAID, NAMES)
    assert (await first)[1] == said


@pytest.mark.parametrize("answers", [True, False])
async def test_when_a_step_fails_the_asker_is_told_which(answers: bool) -> None:
    provider = Provider()
    refusing(provider, "ship")
    world = World(OrderedClock(), handlers=trips(provider, answers=answers))
    status, said = await ask(world.east)

    why = "step 'ship' was not done: NotDone: declined"
    assert provider.names == ["charge"]
    assert await ask(world.west) == (status, said)
    if answers:
        assert (status, said["answer"]) == (200, {"refused": why})
        return
    assert (status, said["halts"], said["detail"]) == (422, True, f"StepFailed: {why}")
    provider.before = nothing
    await world.west.resolver.resolve("acc-7", RETRY)
    status, said = await ask(world.east)
    assert (status, said["answer"]["receipts"], provider.names) == (200, PAID, NAMES)


# A saga.


def person_decides(stage: SagaStage, provider: Provider, after: int = 0) -> list[int]:
    """Let a person decide while the saga waits after so many tries; how many decisions it took."""
    decided: list[int] = []
    waits = count()

    @in_place_of(stage.clock, "sleep")
    async def decide_first(sleep: Any, seconds: float) -> None:
        entries = stage.entries()
        is_unknown = bool(entries and entries[-1].get("unknown"))
        if not decided and is_unknown and next(waits) == after:
            decided.append(0)
            decided[0] = await decide_unknown(stage, provider)
        await sleep(seconds)

    return decided


def deeds(stage: SagaStage) -> list[str]:
    return list(stage.state("room:1").get("done", []))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("step", "when"), [("ship", "before"), ("charge", "after")])
async def test_when_the_worker_of_a_saga_dies_the_other_region_goes_on(
    policy: str, step: str, when: str
) -> None:
    provider = Provider(knows_keys=policy == "repeat")
    stage = SagaStage(trips(provider, policy))
    await stage.start("t-1", '{"item":"book"}', kind="trip.book")
    walk = await stage.walk("t-1")
    await hanging(provider, step, when, asyncio.ensure_future(walk.run()))
    stage.clock.seconds += LEASE_OVER
    decided = person_decides(stage, provider)

    assert await (await stage.walk("t-1", "west")).run() is SagaState.COMPLETED

    assert decided == ([1] if policy == "halt" else [])
    assert provider.names == NAMES
    assert (stage.state("acc-7")["receipts"], deeds(stage)) == (PAID, ["room"])
    assert provider.calls.count("charge") == (2 if (policy, step) == ("repeat", "charge") else 1)


async def test_when_a_person_decides_after_all_tries_of_the_step_the_saga_goes_on() -> None:
    provider = Provider()
    stage = SagaStage(trips(provider))
    breaking(provider, "ship")
    await stage.start("t-1", '{"item":"book"}', kind="trip.book")
    walk = await stage.walk("t-1")
    decided = person_decides(stage, provider, after=12)

    assert await walk.run() is SagaState.COMPLETED

    asked = [request.calls[0].activity for request, _ in walk.history if hasattr(request, "calls")]
    assert Activity.GIVE_UP in asked, "the saga tried to give the step up"
    assert (decided, provider.calls) == ([1], NAMES)
    assert (stage.state("acc-7")["receipts"], deeds(stage)) == (PAID, ["room"])


async def test_when_nobody_decides_the_saga_ends_and_names_what_is_unknown() -> None:
    provider = Provider()
    stage = SagaStage(trips(provider))
    breaking(provider, "ship")
    await stage.start("t-1", '{"item":"book"}', kind="trip.book")

    assert await (await stage.walk("t-1")).run() is SagaState.COMPENSATION_FAILED

    assert stage.record("t-1").outcomes == {"room": "undone", "pay": "unknown"}
    assert (deeds(stage), provider.calls) == (["room", "room.undo"], NAMES)
    found = {one.kind: one.session for one in await listed(stage.worker("west"))}
    assert found == {StandstillKind.UNKNOWN: "acc-7", StandstillKind.ALERT: "saga:t-1"}
    # The payment is still a person's to decide, and is not made again for it.
    assert await decide_unknown(stage, provider) == 1
    assert (stage.state("acc-7")["receipts"], provider.calls) == (PAID, NAMES)


@pytest.mark.parametrize("answers", [True, False])
async def test_when_a_step_fails_the_saga_turns_back(answers: bool) -> None:
    provider = Provider()
    refusing(provider, "ship")
    stage = SagaStage(trips(provider, answers=answers, on_fault=OnFault.SKIP))
    await stage.start("t-1", '{"item":"book"}', kind="trip.book")

    assert await (await stage.walk("t-1")).run() is SagaState.COMPENSATED

    record = stage.record("t-1")
    assert record.outcomes == {"room": "undone", "pay": "refused"}
    assert record.reason is not None
    assert record.reason.endswith("step 'ship' was not done: NotDone: declined")
    assert (provider.names, deeds(stage)) == (["charge"], ["room", "room.undo"])
