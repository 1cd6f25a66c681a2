"""What a handler is given and what is kept of its result: no state of its own leaks in or out."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field

from shared.domain.errors import NotStorable
from shared.domain.handler import (
    Context,
    Handled,
    Handler,
    HandlerInput,
    Kind,
    NoState,
    Output,
    StateModel,
)
from shared.domain.message import Message, Number
from shared.engine.handle.handle import run_pure
from tests.world import Account, Amount, World, message


class Loose(BaseModel):
    """A state whose insides pydantic does not look at."""

    anything: dict[str, Any] = {}


class Named(BaseModel):
    """A model whose JSON has names of its own."""

    book_title: str = Field(default="", alias="bookTitle")
    seen: datetime = datetime(2013, 1, 1, tzinfo=UTC)

    @property
    def length(self) -> int:
        """How long the title is."""
        return len(self.book_title)


class Measured(BaseModel):
    """A model with a number JSON may not have."""

    value: float = 0.0


def handler(handle: Callable[..., Any], state: type[BaseModel] = Account, **more: Any) -> Handler:
    """A handler of amounts."""
    return Handler("account.add", StateModel(state), Amount, handle, **more)


def test_a_handler_cannot_change_the_remembered_state_behind_the_journals_back() -> None:
    remembered = {"anything": {"list": [1]}}

    def grow(state: Loose, _: Amount, __: Context) -> Loose:
        state.anything["list"].append(2)
        raise ArithmeticError("after it was changed")

    with pytest.raises(ArithmeticError):
        run_pure(handler(grow, Loose), HandlerInput(remembered), message(0))

    assert remembered == {"anything": {"list": [1]}}


def test_a_state_comes_back_as_it_was_whatever_its_names() -> None:
    seen: list[Named] = []

    def read(state: Named, _: Amount, __: Context) -> Named:
        seen.append(state)
        return Named(bookTitle="Journals", seen=datetime(2014, 1, 1, tzinfo=UTC))

    first = run_pure(handler(read, Named), HandlerInput(), message(0))
    run_pure(handler(read, Named), HandlerInput(first.state), message(1))

    assert seen[1] == Named(bookTitle="Journals", seen=datetime(2014, 1, 1, tzinfo=UTC))
    assert first.state["bookTitle"] == "Journals"


def test_an_output_has_the_names_that_its_reader_expects() -> None:
    def tell(state: Account, _: Amount, __: Context) -> Handled[Account]:
        return Handled(state, (Output("book", Named(bookTitle="Journals")),))

    (parcel,) = run_pure(handler(tell), HandlerInput(), message(0)).batches

    assert Named.model_validate_json(parcel.messages[0].body).book_title == "Journals"


def test_a_handler_that_keeps_no_state_leaves_its_sessions_alone() -> None:
    def note(state: NoState, _: Amount, __: Context) -> NoState:
        return state

    assert run_pure(handler(note, NoState), HandlerInput({"amounts": [1]}), message(0)).state == {
        "amounts": [1]
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_output_with_a_number_that_json_does_not_have_is_refused(value: float) -> None:
    def measure(_: Measured, __: Amount, ___: Context) -> Handled[Measured]:
        return Handled(Measured(), (Output("measured", Measured(value=value)),))

    with pytest.raises((ValueError, NotStorable), match="JSON"):
        run_pure(handler(measure, Measured), HandlerInput(), message(0))


def test_what_was_captured_is_the_same_in_the_first_run_and_in_every_later_one() -> None:
    seen: list[Any] = []

    def look(state: Account, _: Amount, context: Context) -> Account:
        seen.append(context.captured("prices", lambda: {1: (2, 3)}))
        return state

    first = run_pure(handler(look), HandlerInput(), message(0))
    run_pure(
        handler(look), HandlerInput(captured=json.loads(json.dumps(first.captured))), message(0)
    )

    assert seen == [{"1": [2, 3]}] * 2


def test_what_was_captured_and_is_no_json_is_refused() -> None:
    def look(state: Account, _: Amount, context: Context) -> Account:
        context.captured("price", object)
        return state

    with pytest.raises(TypeError, match="not JSON serializable"):
        run_pure(handler(look), HandlerInput(), message(0))


class Calling:
    """A handler that is an object."""

    async def __call__(self, account: Account, body: Amount, _: Context) -> Account:
        """Book an amount."""
        return Account(amounts=[*account.amounts, body.amount])


def plainly(account: Account, body: Amount, _: Context) -> Account:
    """Book an amount in a thread of its own."""
    return Account(amounts=[*account.amounts, body.amount])


async def promptly(account: Account, body: Amount, _: Context) -> Account:
    """Book an amount."""
    return plainly(account, body, _)


@pytest.mark.parametrize(
    "handle", [plainly, promptly, Calling(), partial(promptly), partial(plainly)]
)
async def test_any_form_of_handler_may_call_the_outside(handle: Callable[..., Any]) -> None:
    effectful = handler(handle, kind=Kind.EFFECTFUL)
    whole = await World().east.consumer.runner.run_once(effectful, HandlerInput(), message(0))

    assert whole.state == {"amounts": [1]}


def test_an_unordered_output_has_no_number_and_takes_none() -> None:
    def tell(state: Account, body: Amount, _: Context) -> Handled[Account]:
        loose = Output("told", body, ordered=False)
        return Handled(state, (Output("told", body), loose, Output("told", body)))

    (parcel,) = run_pure(handler(tell), HandlerInput(), message(0)).batches

    group = "session:acc-7"
    assert [m.number for m in parcel.messages] == [Number(group, 0, 0), None, Number(group, 0, 1)]
    assert len({m.id for m in parcel.messages}) == 3


def test_ids_of_outputs_do_not_collide_over_sessions_and_messages() -> None:
    def tell(state: Account, body: Amount, _: Context) -> Handled[Account]:
        return Handled(state, tuple(Output("told", body) for _ in range(12)))

    pairs = [("a_b", "c"), ("a", "b_c"), ("a", "b"), ("a1", "b"), ("a", "1b")]
    ids = [
        output.id
        for session, name in pairs
        for parcel in run_pure(
            handler(tell), HandlerInput(), Message(name, session, "account.add", b'{"amount":1}')
        ).batches
        for output in parcel.messages
    ]

    assert len(set(ids)) == len(ids) == 60
