"""A new version of a model meets old states, an old version meets new ones, and nothing is lost."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from shared.domain.errors import InvalidState, NotHalted, Unavailable
from shared.domain.handler import Context, Handlers, OnFault, StateModel
from shared.engine.consume.outcomes import Faulted, Parked, Processed
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from tests.world import RETRY, Account, Amount, World, add, message, take


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


async def test_old_code_halts_on_new_data_and_goes_on_after_the_right_deployment() -> None:
    world = World(handlers=newer())
    await take(world.east, message(0))

    deploy(world, older())
    faulted, parked = await take(world.east, message(1), message(2))

    # The type says that its faults are skipped, but nothing is wrong with this message.
    assert isinstance(faulted, Faulted)
    assert parked == Parked()
    fault = world.entries()[1]
    assert fault["reason"] == (
        "the session's state is of version 2 of 'Account', and this app knows version 1"
    )
    assert json.loads(fault["message"]["body"]) == {"amount": 2}

    deploy(world, newer())
    await world.west.resolver.resolve("acc-7", RETRY)

    assert world.entries()[-1]["state"] == {"total": 6, "amounts": 3}


async def test_the_old_shape_comes_back_as_a_third_version() -> None:
    world = World(handlers=newer())
    await take(world.east, message(0), message(1))
    deploy(world, older())
    await take(world.east, message(2))

    def withdraw(old: dict[str, Any], version: int) -> Account:
        return Account(amounts=[old["total"]] if version == 2 else old["amounts"])

    withdrawn = Handlers()
    third = StateModel(Account, version=3, upgrade=withdraw)
    withdrawn.register("account.add", state=third, body=Amount, on_fault=OnFault.SKIP)(add)
    deploy(world, withdrawn)
    await world.west.resolver.resolve("acc-7", RETRY)
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

    with pytest.raises(Unavailable):
        await world.east.resolver.resolve("nobody", set_state({"amounts": []}))
    with pytest.raises(NotHalted):
        await world.east.resolver.resolve("acc-7", set_state({"amounts": []}, at=0))
