"""Handlers are found by type and run purely: no state leaks, and the bytes are always the same."""

import json
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field

from shared.domain.errors import InvalidBody, NotStorable
from shared.domain.handler import (
    Context,
    Handled,
    Handler,
    HandlerInput,
    HandlerResult,
    Handlers,
    Kind,
    NoState,
    Output,
    StateModel,
)
from shared.domain.journal import ModelVersion
from shared.domain.message import Message, Number
from shared.engine.handle.handle import run_pure
from shared.engine.handle.raised import HandlerFailed
from tests.programs import run_python
from tests.world import Account, Amount, World, add, handlers, message


class Loose(BaseModel):
    """A state whose insides pydantic does not look at."""

    anything: dict[str, Any] = {}


class Named(BaseModel):
    """A model whose JSON has names of its own."""

    book_title: str = Field(default="", alias="bookTitle")


class Colour(StrEnum):
    RED = "red"


class Measured(BaseModel):
    """A model with a number JSON may not have."""

    value: float = 0.0


def handler(handle: Callable[..., Any], state: type[BaseModel] = Account) -> Handler:
    """A handler of amounts."""
    return Handler("account.add", StateModel(state), Amount, handle)


def run(handle: Callable[..., Any], *given: Any, state: type[BaseModel] = Account) -> HandlerResult:
    """What comes of a message, for a handler that is given this state."""
    return run_pure(handler(handle, state), HandlerInput(*given), message(0))


def test_running_again_in_another_process_gives_the_same_bytes() -> None:
    program = (
        "from tests.world import handlers, message\n"
        "from shared.domain.handler import HandlerInput\n"
        "from shared.engine.handle.handle import run_pure\n"
        "print(run_pure(handlers.of('account.bill'), HandlerInput(), message(0)))"
    )
    runs = {run_python(program, PYTHONHASHSEED=seed) for seed in ("1", "2")}

    here = run_pure(handlers.of("account.bill"), HandlerInput(), message(0))
    assert runs == {f"{here}\n"}


def test_now_is_the_senders_time_and_missing_without_one() -> None:
    timed = Message("m", "s", "t", b"{}", time="2013-01-01T05:17:00")

    assert Context(timed).now.hour == 5
    with pytest.raises(InvalidBody, match="no time"):
        _ = Context(message(0)).now


def test_a_handler_cannot_change_the_remembered_state_behind_the_journals_back() -> None:
    remembered = {"anything": {"list": [1]}}

    def grow(state: Loose, _: Amount, __: Context) -> Loose:
        state.anything["list"].append(2)
        raise ArithmeticError("after it was changed")

    with pytest.raises(HandlerFailed, match="ArithmeticError: after it was changed"):
        run(grow, remembered, state=Loose)

    assert remembered == {"anything": {"list": [1]}}


def test_a_handler_that_keeps_no_state_leaves_its_sessions_alone() -> None:
    kept = run(lambda state, _, __: state, {"amounts": [1]}, state=NoState)

    assert kept.state == {"amounts": [1]}


def test_an_output_has_the_names_that_its_reader_expects() -> None:
    book = Output("book", Named(bookTitle="Journals"))

    (batch,) = run(lambda state, _, __: Handled(state, (book,))).batches

    assert Named.model_validate_json(batch.messages[0].body).book_title == "Journals"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_output_with_a_number_that_json_does_not_have_is_refused(value: float) -> None:
    measured = Output("measured", Measured(value=value))

    said = "its output 'measured' is .* value: Input should be a valid number"
    with pytest.raises(NotStorable, match=said):
        run(lambda state, _, __: Handled(state, (measured,)))


def test_what_was_captured_is_the_same_in_the_first_run_and_in_every_later_one() -> None:
    seen: list[Any] = []

    def look(state: Account, _: Amount, context: Context) -> Account:
        seen.append(context.captured("prices", lambda: {"gold": (2, 3.0)}))
        return state

    stored = json.loads(json.dumps(run(look).captured))
    run_pure(handler(look), HandlerInput(captured=stored), message(0))

    assert repr(seen) == repr([{"gold": [2, 3]}] * 2)


@pytest.mark.parametrize(
    ("captured", "said"),
    [
        (object(), "captured as 'price' is no JSON: Object of type object"),
        ({"eur": float("nan")}, "captured as 'price' is no JSON: Out of range"),
        ({1: "one", "1": "uno"}, "captured as 'price' is not kept by JSON: some of it is gone"),
        ({1: "one"}, "captured as 'price.key 1' is not kept by JSON: int comes back as str"),
        ([Colour.RED], "captured as 'price.0' is not kept by JSON: Colour comes back as str"),
        ({"ticks": 2**53 + 1}, "the whole number 'captured.price.ticks' is beyond 2"),
    ],
)
def test_what_was_captured_and_is_not_kept_is_refused_by_name(captured: Any, said: str) -> None:
    def look(state: Account, _: Amount, context: Context) -> Account:
        context.captured("price", lambda: captured)
        return state

    with pytest.raises(NotStorable, match=said):
        run(look)


class Calling:
    """A handler that is an object."""

    async def __call__(self, account: Account, body: Amount, _: Context) -> Account:
        return add(account, body, _)


async def promptly(account: Account, body: Amount, _: Context) -> Account:
    return add(account, body, _)


@pytest.mark.parametrize(
    "handle",
    [
        add,
        promptly,
        Calling(),
        partial(promptly),
        partial(add),
        lambda *_: Account(amounts=[1]),
    ],
)
async def test_any_form_of_handler_may_call_the_outside(handle: Callable[..., Any]) -> None:
    own = Handlers()
    own.register("account.pay", state=Account, body=Amount, kind=Kind.EFFECTFUL)(handle)
    runner = World().east.consumer.runner

    whole = await runner.run_once(own.of("account.pay"), HandlerInput(), message(0))

    assert whole.state == {"amounts": [1]}


def test_outputs_continue_the_sessions_own_numbering_and_an_unordered_one_takes_no_number() -> None:
    def tell(state: Account, body: Amount, _: Context) -> Handled[Account]:
        loose = Output("told", body, ordered=False)
        return Handled(state, (Output("told", body), loose, Output("told", body)))

    result = run(tell, {"amounts": [5]}, {"": {"acc-7": 3}})

    (batch,) = result.batches
    group = "session:acc-7"
    assert [m.number for m in batch.messages] == [Number(group, 0, 3), None, Number(group, 0, 4)]
    assert len({m.id for m in batch.messages}) == 3
    assert result.produced == {"": {"acc-7": 5}}


def test_a_state_that_python_takes_for_the_one_before_is_another_one() -> None:
    before = {"anything": {"paid": 1}}

    def pay(_: Loose, __: Amount, ___: Context) -> Loose:
        return Loose(anything={"paid": True})

    given = HandlerInput(before, model=ModelVersion("Loose", 1))
    result = run_pure(handler(pay, Loose), given, message(0))

    assert repr(result.state) == "{'anything': {'paid': True}}"
    assert not result.is_state_kept
    same = handler(lambda state, _, __: state, Loose)
    assert run_pure(same, given, message(0)).is_state_kept
