"""A new version of a model meets old states, an old version meets new ones, and nothing is lost."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock

import pytest
from pydantic import BaseModel

from functions.http.descriptions import describe_standstill
from functions.http.operate import find_session
from shared.domain.errors import (
    InvalidState,
    NewerState,
    NotHalted,
    NotMissing,
    Unavailable,
    UnknownSession,
)
from shared.domain.handler import (
    Context,
    Handled,
    Handlers,
    Kind,
    OnFault,
    Output,
    StateModel,
)
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.saga.record import SagaKinds
from shared.domain.standstill import StandstillKind
from shared.domain.wire import to_properties
from shared.engine.build import Services
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Faulted,
    Parked,
    Processed,
)
from shared.engine.sagas.sagas import Sagas
from shared.ports import DeadLetter
from tests.world import (
    LAG_SECONDS,
    RETRY,
    Account,
    Amount,
    World,
    add,
    message,
    take,
)


class Balance(BaseModel):
    """What an account became: the sum, and how many amounts it is made of."""

    total: int = 0
    amounts: int = 0


def summed(old: dict[str, Any], version: int) -> Balance:
    """The sum of what was a list."""
    assert version == 1
    return Balance(total=sum(old["amounts"]), amounts=len(old["amounts"]))


BALANCE = StateModel(Balance, version=2, upgrade=summed, name="Account")


def newer() -> Handlers:
    """The handlers after a deployment that changed the model."""
    handlers = Handlers()

    @handlers.register("account.add", state=BALANCE, body=Amount, on_fault=OnFault.SKIP)
    def add(balance: Balance, body: Amount, _: Context) -> Balance:
        return Balance(total=balance.total + body.amount, amounts=balance.amounts + 1)

    return handlers


def older() -> Handlers:
    """The handlers before it."""
    handlers = Handlers()
    register = handlers.register("account.add", state=Account, body=Amount, on_fault=OnFault.SKIP)
    register(add)
    return handlers


def deploy(world: World, handlers: Handlers) -> None:
    """Both regions start anew, with these handlers."""
    world.handlers = handlers
    world.east, world.west = world.worker("east"), world.worker("west")


async def test_new_code_reads_old_data() -> None:
    world = World(handlers=older())
    await take(world.east, message(0), message(1))

    deploy(world, newer())
    (outcome,) = await take(world.east, message(2))

    assert isinstance(outcome, Processed)
    entries = world.entries()
    assert [one["state"] for one in entries] == [
        {"amounts": [1]},
        {"amounts": [1, 2]},
        {"total": 6, "amounts": 3},
    ]
    assert [one["model"] for one in entries] == [["Account", 1], ["Account", 1], ["Account", 2]]


async def test_what_was_stored_before_models_were_recorded_is_their_first_version() -> None:
    world = World(handlers=older())
    await take(world.east, message(0))
    for document in world.journal.partitions["acc-7"].values():
        document.pop("model", None)

    deploy(world, newer())
    await take(world.east, message(1))

    assert world.entries()[-1]["state"] == {"total": 3, "amounts": 2}


WAITS = "version 2 of 'Account', and this app knows version 1: it waits for the newer code"


def deploying(
    of_new: Callable[[], Handlers] = newer, of_old: Callable[[], Handlers] = older
) -> tuple[World, Services, Services]:
    """A journal with a worker of the newer code and one of the older, in one region."""
    world = World(handlers=of_new())
    new = world.worker("east")
    world.handlers = of_old()
    return world, new, world.worker("east")


def statuses(world: World) -> list[str]:
    return [one["status"] for one in world.entries()]


async def test_when_old_code_meets_new_data_the_message_is_parked_and_newer_code_drains_it() -> (
    None
):
    world, new, old = deploying()
    await take(new, message(0))

    # No delivery is given back, however often it comes.
    assert await take(old, message(1), message(1)) == [Parked(), AlreadyDone()]
    assert statuses(world) == ["completed", "parked"]
    assert world.bus.messages("east", "errors") == []

    await take(new, message(2))
    assert statuses(world)[-1] == "completed"
    assert world.entries()[-1]["state"] == {"total": 6, "amounts": 3}


async def test_when_a_deployment_is_under_way_both_codes_take_turns_and_nothing_is_lost() -> None:
    world, new, old = deploying()
    await take(old, message(0))
    await take(new, message(1))

    for n in range(2, 8, 2):
        assert await take(old, message(n)) == [Parked()]
        await take(new, message(n + 1))
    # It remembers nothing that would hide that newer code was there.
    assert await take(old, message(7), message(2)) == [AlreadyDone()] * 2
    assert world.entries()[-1]["state"] == {"total": 36, "amounts": 8}
    assert set(statuses(world)) == {"completed", "parked"}


async def test_when_several_messages_meet_newer_data_at_once_none_is_a_fault() -> None:
    world, new, old = deploying()
    await take(new, message(0))

    calls = [old.consumer.consume(message(n)) for n in range(1, 4)]
    assert await asyncio.gather(*calls) == [Parked()] * 3

    await take(new, message(4))
    assert world.entries()[-1]["state"] == {"total": 15, "amounts": 5}


async def test_when_parked_messages_meet_newer_data_they_stay_parked_and_people_are_told() -> None:
    world, new, old = deploying()
    await take(new, message(0))
    world.clock.seconds += 100
    assert await take(old, message(2)) == [Parked()]

    # The missing one comes to the old code, which can do nothing with it.
    assert await take(old, message(1)) == [Parked()]
    await old.recovery.sweep()
    world.clock.seconds += old.worker.policy.standstill_seconds + 1

    (still,) = (await old.standstills.find(limit=10)).standstills
    assert (still.kind, still.parked, still.group) == (StandstillKind.GAP, 2, None)
    assert still.cause.endswith(WAITS)
    assert describe_standstill(still)["verbs"] == []
    # Nobody skips what is there; what is missing besides is told by its own name.
    skip = ResolutionRequest(
        ResolutionAction.SKIP_NUMBER, "Ada", "it is lost", group="bank", number=1
    )
    with pytest.raises(NotMissing):
        await old.resolver.resolve("acc-7", skip)
    assert await take(old, message(4)) == [Parked()]

    await take(new, message(3))
    assert world.entries()[-1]["state"] == {"total": 15, "amounts": 5}
    assert (await old.standstills.find(limit=10)).standstills == ()


async def test_when_only_parked_messages_are_left_the_newer_codes_sweep_drains_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, new, old = deploying()
    await take(new, message(0))
    await take(old, message(2))
    # The worker that takes the missing one dies before it drains.
    monkeypatch.setattr(new.consumer, "drain", AsyncMock(side_effect=ConnectionError))
    with pytest.raises(ConnectionError):
        await new.consumer.consume(message(1))

    world.clock.seconds += LAG_SECONDS
    await old.recovery.sweep()
    assert [one["status"] for one in world.entries()][-1] == "completed"
    assert len(world.entries()) == 3
    await world_of(world, newer()).recovery.sweep()

    assert world.entries()[-1]["state"] == {"total": 6, "amounts": 3}


def world_of(world: World, handlers: Handlers) -> Services:
    """Another process with this code."""
    world.handlers = handlers
    return world.worker("east")


def paying(model: StateModel, handle: Callable[[Any, Amount, Context], Any]) -> Handlers:
    """Handlers that call the outside."""
    handlers = Handlers()
    handlers.register("account.add", state=model, body=Amount, kind=Kind.EFFECTFUL)(handle)
    return handlers


def pay(balance: Balance, body: Amount, _: Context) -> Balance:
    return Balance(total=balance.total + body.amount, amounts=balance.amounts + 1)


async def test_when_a_handler_calls_the_outside_old_code_claims_no_newer_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[int] = []

    def call(account: Account, body: Amount, context: Context) -> Account:
        called.append(body.amount)
        return add(account, body, context)

    world, new, old = deploying(
        lambda: paying(BALANCE, pay), lambda: paying(StateModel(Account), call)
    )
    await take(new, message(0))

    assert await take(old, message(1)) == [Parked()]
    assert (called, statuses(world)) == ([], ["completed", "parked"])

    # The owner of the next claim dies; old code leaves it to newer code.
    monkeypatch.setattr(new.consumer.claims, "work", AsyncMock(side_effect=ConnectionError))
    with pytest.raises(ConnectionError):
        await new.consumer.consume(message(1))
    world.clock.seconds += 2 * old.worker.policy.lease_seconds
    assert await take(old, message(1), message(2), message(3)) == [Claimed(), Parked(), Parked()]
    world.clock.seconds += LAG_SECONDS
    await old.recovery.sweep()
    assert (called, world.entries()[-1]["lease"]["tries"]) == ([], 1)

    newer_worker = world_of(world, paying(BALANCE, pay))
    for _ in range(3):
        await newer_worker.recovery.sweep()
        world.clock.seconds += LAG_SECONDS
    assert world.entries()[-1]["state"] == {"total": 10, "amounts": 4}


def telling(model: StateModel, handle: Callable[[Any, Amount, Context], Any]) -> Handlers:
    """Handlers whose outputs are made again."""
    handlers = Handlers()
    handlers.register("account.add", state=model, body=Amount, kind=Kind.DETERMINISTIC)(handle)
    return handlers


def tell_new(balance: Balance, body: Amount, context: Context) -> Handled[Balance]:
    return Handled(pay(balance, body, context), (Output("told", body),))


def tell_old(account: Account, body: Amount, context: Context) -> Handled[Account]:
    return Handled(add(account, body, context), (Output("told", Amount(amount=-body.amount)),))


async def test_when_outputs_of_newer_code_are_pending_old_code_leaves_them_so() -> None:
    world, new, _ = deploying(
        lambda: telling(BALANCE, tell_new), lambda: telling(StateModel(Account), tell_old)
    )
    west = world.worker("west")
    with world.without("west"):
        await take(new, message(0), message(1))
    world.clock.seconds += LAG_SECONDS

    await west.recovery.sweep()

    assert world.outputs("west") == []
    assert await world.journal.blocked("acc-7") == []
    world.handlers = telling(BALANCE, tell_new)
    world.clock.seconds += LAG_SECONDS
    await world.worker("west").recovery.sweep()
    assert world.outputs("west") == world.outputs("east")
    assert [body for _, body in world.outputs("west")] == [b'{"amount":1}', b'{"amount":2}']


async def test_when_a_dead_letter_meets_newer_data_it_is_parked() -> None:
    world, new, old = deploying()
    await take(new, message(0))
    letter = DeadLetter("acc-7", to_properties(message(1)), message(1).body, "delivered too often")

    assert await old.dead_letters.end(letter)
    assert statuses(world) == ["completed", "parked"]

    await take(new, message(2))
    assert world.entries()[-1]["state"] == {"total": 6, "amounts": 3}


async def test_when_a_person_sets_a_newer_state_by_old_code_it_waits() -> None:
    world, new, old = deploying()
    await take(new, message(0))

    with pytest.raises(NewerState, match=WAITS):
        await old.resolver.resolve("acc-7", set_state({"amounts": []}))
    _, shown = await find_session(old, "acc-7")

    assert shown["state"] == {"total": 1, "amounts": 1}
    assert len(world.entries()) == 1
    await new.resolver.resolve("acc-7", set_state({"total": 7, "amounts": 1}))
    assert world.entries()[-1]["state"] == {"total": 7, "amounts": 1}


async def test_when_a_saga_was_recorded_by_a_newer_release_it_is_not_touched() -> None:
    world = World(handlers=SagaKinds().handlers)
    await Sagas(world.east.consumer).add_event("trip-1", "paid")
    for document in world.journal.partitions["saga:trip-1"].values():
        if "model" in document:
            document["model"] = ["SagaRecord", 2]
    sagas = Sagas(world.worker("east").consumer)

    with pytest.raises(NewerState, match="version 2 of 'SagaRecord'"):
        await sagas.read_record("trip-1")
    with pytest.raises(Unavailable, match="session 'saga:trip-1' waits"):
        await sagas.add_event("trip-1", "cancelled")
    assert [one["status"] for one in world.entries("saga:trip-1")] == ["completed", "parked"]


async def test_a_message_that_keeps_no_state_does_not_wait_for_newer_code() -> None:
    def stateless() -> Handlers:
        handlers = older()
        handlers.register("account.look", body=Amount)(lambda state, _, __: state)
        return handlers

    world, new, old = deploying(of_old=stateless)
    await take(new, message(0))

    (outcome,) = await take(old, message(1, kind="account.look"))

    assert isinstance(outcome, Processed)
    await take(new, message(2))
    assert world.entries()[-1]["state"] == {"total": 4, "amounts": 2}


async def test_the_old_shape_comes_back_as_a_third_version() -> None:
    world = World(handlers=newer())
    await take(world.east, message(0), message(1))
    deploy(world, older())
    assert await take(world.east, message(2)) == [Parked()]

    def withdraw(old: dict[str, Any], version: int) -> Account:
        return Account(amounts=[old["total"]] if version == 2 else old["amounts"])

    withdrawn = Handlers()
    third = StateModel(Account, version=3, upgrade=withdraw)
    withdrawn.register("account.add", state=third, body=Amount, on_fault=OnFault.SKIP)(add)
    deploy(world, withdrawn)
    await take(world.east, message(3))

    assert world.amounts() == [3, 3, 4]
    assert world.entries()[-1]["model"] == ["Account", 3]


async def test_a_message_of_another_model_leaves_the_state_alone() -> None:
    world = World(handlers=older())
    await take(world.east, message(0))
    strangers = Handlers()
    strangers.register("account.add", state=Balance, body=Amount)(lambda *_: Balance())
    deploy(world, strangers)

    (outcome,) = await take(world.east, message(1))

    assert isinstance(outcome, Faulted)
    assert outcome.entry.reason == (
        "the session's state is of the model 'Account', and the handler wants 'Balance'"
    )
    assert world.entries()[-1]["state_at"] == 0


def set_state(state: Any, **more: Any) -> ResolutionRequest:
    """A person's new state for a session."""
    body = json.dumps(state).encode()
    return ResolutionRequest(ResolutionAction.SET_STATE, "Ada", "a wrong upgrade", body, **more)


async def unreadable() -> World:
    """A session with a state that its handlers cannot read, halted, with a message behind."""
    world = World(handlers=older())
    await take(world.east, message(0))
    world.journal.partitions["acc-7"]["000000000000"]["state"] = {"amounts": [1], "limit": 5}
    deploy(world, older())
    faulted, _ = await take(world.east, message(1), message(2))
    assert isinstance(faulted, Faulted)
    assert (
        faulted.entry.reason
        == "the stored state is not what Account version 1 reads: unknown 'limit'"
    )
    return world


async def test_a_person_sets_the_state_right_and_the_message_runs_on_it() -> None:
    world = await unreadable()

    entry = await world.east.resolver.resolve("acc-7", set_state({"amounts": [10]}, at=1))

    assert entry.halt is not None
    assert entry.halt.at == 1
    stored = world.entries()[3]
    assert (stored["state"], stored["model"]) == ({"amounts": [10]}, ["Account", 1])
    assert stored["resolution"] == {
        "action": "set-state",
        "who": "Ada",
        "why": "a wrong upgrade",
        "at": None,
    }

    await world.west.resolver.resolve("acc-7", RETRY)

    assert world.amounts() == [10, 2, 3]


async def test_a_person_sets_the_state_of_an_open_session() -> None:
    world = World(handlers=older())
    await take(world.east, message(0))

    await world.west.resolver.resolve("acc-7", set_state({"amounts": []}))
    copy, after = await take(world.east, message(0), message(1))

    assert not isinstance(copy, Processed)
    assert isinstance(after, Processed)
    assert world.amounts() == [2]


@pytest.mark.parametrize(
    "state", [{"amounts": "x"}, {}, {"amounts": [1], "limit": 5}, [1], None, {"amounts": [1.5]}]
)
async def test_what_is_no_state_of_the_model_is_not_set(state: Any) -> None:
    world = await unreadable()

    with pytest.raises(InvalidState):
        await world.east.resolver.resolve("acc-7", set_state(state))
    assert len(world.entries()) == 3


async def test_a_state_is_set_where_there_is_one_and_for_the_fault_that_is_meant() -> None:
    world = await unreadable()

    with pytest.raises(UnknownSession):
        await world.east.resolver.resolve("nobody", set_state({"amounts": []}))
    with pytest.raises(NotHalted):
        await world.east.resolver.resolve("acc-7", set_state({"amounts": []}, at=0))
