"""A state is checked when a handler returns it, and again when it is read."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from functools import cached_property
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr

from shared.domain.errors import InvalidState, UnreadableState
from shared.domain.handler import (
    Context,
    Handled,
    Handler,
    HandlerInput,
    HandlerResult,
    Handlers,
    Kind,
    NoState,
    StateModel,
)
from shared.domain.journal import Json, ModelVersion
from shared.domain.saga.record import SagaKinds
from shared.engine.handle.handle import run_pure
from tests.world import Amount, World, message


class Account(BaseModel):
    balance: int = 0
    owner: str | None = None


class Special(Account):
    limit: int = 0


class Shelf(BaseModel):
    left: int = 0


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Rich(BaseModel):
    """A state of everything that JSON has no word of its own for."""

    model_config = ConfigDict(populate_by_name=True)

    opened: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    lasts: timedelta = timedelta(hours=1)
    price: Decimal = Decimal("1.10")
    colours: set[Colour] = set()
    names: frozenset[str] = frozenset()
    pair: tuple[int, str] = (0, "")
    seller: str = Field(default="", alias="soldBy")
    rate: float = 1.0
    inner: dict[str, Shelf] = {}

    @cached_property
    def is_red(self) -> bool:
        """Kept beside the fields once it was asked for."""
        return Colour.RED in self.colours


class Loose(BaseModel):
    """A state whose insides pydantic does not look at."""

    value: Any = None
    ratio: float | None = None
    hidden: int = Field(default=0, exclude=True)
    secret: SecretStr = SecretStr("")
    held: Shelf = Shelf()


class Wide(BaseModel):
    model_config = ConfigDict(extra="allow")


def returning(returned: Any, state: type[BaseModel] = Account) -> HandlerResult:
    """What is kept of what a handler returned."""
    handler = Handler("deposit", StateModel(state), Amount, lambda *_: returned)
    return run_pure(handler, HandlerInput(), message(0, kind="deposit"))


def reading(
    stored: Json,
    model: ModelVersion | None,
    declared: StateModel = StateModel(Account),  # noqa: B008 - it is frozen
) -> Any:
    """The state that a handler finds."""
    found: list[BaseModel] = []

    def look(before: BaseModel, _: Amount, __: Context) -> BaseModel:
        found.append(before)
        return declared.model()

    handler = Handler("look", declared, Amount, look)
    run_pure(handler, HandlerInput(stored, model=model), message(0, kind="look"))
    return found[0]


def read_again(result: HandlerResult, state: type[BaseModel]) -> BaseModel:
    """The state as the next handler finds it, after the store had it."""
    found: BaseModel = reading(
        json.loads(json.dumps(result.state)), result.model, StateModel(state)
    )
    return found


def changed(**fields: Any) -> Account:
    """An account whose fields nobody checked."""
    return Account().model_copy(update=fields)


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ({"balance": 1}, "returned a dict, not Account or Handled"),
        (None, "returned None, not Account or Handled"),
        (Handled({"balance": 1}), "returned a dict, not Account or Handled"),  # type: ignore[type-var]
        (Shelf(left=1), "returned a Shelf, not Account or Handled"),
        (Special(limit=1), "returned a Special, not Account or Handled"),
        (NoState(), "returned a NoState, not Account or Handled"),
        (changed(balance="5"), "with 'balance' as JSON does not keep"),
        (changed(balance="five"), "no valid Account as JSON: balance: Input"),
        (changed(balance=float("nan")), "no valid Account as JSON: balance"),
        (changed(balance=object()), "with 'balance' as JSON does not keep it"),
        (changed(balence=5), "with 'balence' as JSON does not keep it"),
    ],
)
def test_what_is_no_valid_state_is_refused_by_name(returned: Any, said: str) -> None:
    with pytest.raises(InvalidState, match=f"the handler of 'deposit' .*{said}"):
        returning(returned)


@pytest.mark.parametrize(
    "state",
    [
        Loose(value=float("nan")),
        Loose(ratio=float("inf")),
        Loose(value=(1, 2)),
        Loose(value=datetime(2026, 1, 1, tzinfo=UTC)),
        Loose(hidden=1),
        Loose(secret=SecretStr("x")),
        Loose().model_copy(update={"held": Special(limit=1)}),
    ],
)
def test_what_would_come_back_as_something_else_is_refused(state: BaseModel) -> None:
    with pytest.raises(InvalidState):
        returning(state, Loose)


def test_nothing_is_refused_that_json_gives_back() -> None:
    berlin = timezone(timedelta(hours=1))
    rich = Rich(
        opened=datetime(2026, 3, 1, 12, tzinfo=berlin),
        lasts=timedelta(days=3, seconds=5),
        price=Decimal("12.3400"),
        colours={Colour.RED, Colour.BLUE},
        names=frozenset("abcdefgh"),
        pair=(3, "x"),
        soldBy="Ada",
        rate=2.0,
        inner={"a": Shelf(left=2)},
    )
    assert rich.is_red

    assert read_again(returning(rich, Rich), Rich) == rich
    wide = Wide.model_validate({"anything": [1, {"b": None}]})
    assert read_again(returning(wide, Wide), Wide) == wide


def test_a_set_may_be_stored_in_any_order_and_a_whole_number_as_one() -> None:
    result = returning(Rich(names=frozenset("abc"), rate=2.0), Rich)
    again = dict(result.state) | {"names": sorted(result.state["names"], reverse=True), "rate": 2}

    for stored in (again, dict(result.state) | {"names": sorted(result.state["names"])}):
        kept = HandlerResult(stored, (), {}, {}, model=result.model)
        assert read_again(kept, Rich) == Rich(names=frozenset("abc"), rate=2.0)


async def test_what_called_the_outside_is_not_called_again_for_a_wrong_result() -> None:
    called: list[int] = []

    async def pay(_: Account, body: Amount, __: Context) -> Any:
        called.append(body.amount)
        return {"balance": body.amount}

    handler = Handler("pay", StateModel(Account), Amount, pay, kind=Kind.EFFECTFUL)

    with pytest.raises(InvalidState, match="returned a dict"):
        await World().east.consumer.runner.run_outside(
            handler, HandlerInput(), message(0, kind="pay")
        )
    assert called == [1]


FIRST = ModelVersion("Account", 1)


@pytest.mark.parametrize("model", [FIRST, None])
@pytest.mark.parametrize(
    ("stored", "said"),
    [
        ({"balance": 1, "owner": None, "limit": 5}, "unknown 'limit'"),
        ({"balance": 1}, "missing 'owner'"),
        ({"owner": "ada", "cents": 5}, "unknown 'cents', missing 'balance'"),
        ({"balance": "5", "owner": None}, "another 'balance'"),
        ({"balance": "five", "owner": None}, "no Account: balance: Input should be"),
        ({"amounts": []}, "unknown 'amounts'"),
    ],
)
def test_a_stored_state_is_read_strictly(
    stored: dict[str, Any], said: str, model: ModelVersion | None
) -> None:
    with pytest.raises(UnreadableState, match=said):
        reading(stored, model)


def from_cents(old: dict[str, Any], version: int) -> Account:
    """What an account was in its first version."""
    assert version == 1
    return Account(balance=old.pop("cents") // 100, owner="ada")


SECOND = StateModel(Account, version=2, upgrade=from_cents)


@pytest.mark.parametrize("model", [FIRST, None])
def test_an_old_state_is_upgraded_and_what_is_remembered_stays_as_it_was(
    model: ModelVersion | None,
) -> None:
    stored = {"cents": 500}

    assert reading(stored, model, SECOND) == Account(balance=5, owner="ada")
    assert stored == {"cents": 500}


@pytest.mark.parametrize(
    ("upgrade", "said"),
    [
        (lambda *_: {"balance": 5}, "failed: the upgrade of 'Account' from version 1 returned a d"),
        (lambda *_: 1 / 0, "from version 1 failed: ZeroDivisionError"),
        (lambda *_: Account().model_copy(update={"balance": None}), "balance: Input should be"),
    ],
)
def test_an_upgrade_that_fails_is_named(upgrade: Callable[..., Any], said: str) -> None:
    with pytest.raises(UnreadableState, match=said):
        reading({"cents": 5}, FIRST, StateModel(Account, version=2, upgrade=upgrade))


def test_a_renamed_class_keeps_its_name_in_the_journal() -> None:
    renamed = StateModel(Shelf, name="Account")

    assert reading({"left": 3}, FIRST, renamed) == Shelf(left=3)


class Required(BaseModel):
    owner: str
    balance: int


class Amounts(RootModel[list[int]]):
    root: list[int] = []


class Waiting:
    async def __call__(self, account: Account, _: Amount, __: Context) -> Account:
        return account


async def promptly(account: Account, _: Amount, __: Context) -> Account:
    return account


def kept(account: Account, _: Amount, __: Context) -> Account:
    return account


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (
            {"handle": lambda state, _: state},
            r"called with state, body, context, and takes \(st",
        ),
        ({"handle": promptly}, "the pure handler of 'x' must not be async"),
        ({"handle": promptly, "kind": Kind.DETERMINISTIC}, "must not be async"),
        ({"handle": Waiting()}, "must not be async"),
        ({"state": Required}, "needs a default for owner, balance: the first message"),
        ({"state": dict}, "a state is a pydantic model, not dict"),
        ({"state": Amounts}, "a state has named fields, and Amounts has none"),
        ({"body": dict}, "handler of 'x': a body is a pydantic model, not dict"),
        ({"body": None}, "a body is a pydantic model, not None"),
        ({"attempts": 0}, "attempts must be 1 or more"),
    ],
)
def test_what_can_never_work_is_refused_when_it_is_registered(
    mistake: dict[str, Any], said: str
) -> None:
    whole = {"handle": kept, "state": Account, "body": Amount, **mistake}
    handle = whole.pop("handle")

    with pytest.raises(ValueError, match=said):
        Handlers().register("x", **whole)(handle)


@pytest.mark.parametrize(("version", "upgrade"), [(0, None), (2, None), (-1, from_cents)])
def test_a_version_begins_at_one_and_a_later_one_needs_an_upgrade(
    version: int, upgrade: Callable[..., Any] | None
) -> None:
    with pytest.raises(ValueError, match="versions begin at 1, and a later one needs an upgrade"):
        StateModel(Account, version=version, upgrade=upgrade)


def test_one_model_is_declared_in_one_version() -> None:
    handlers = Handlers()
    handlers.register("x", state=Account, body=Amount)(kept)

    with pytest.raises(ValueError, match="'Account' is declared as version 1 and as version 2"):
        handlers.register("y", state=SECOND, body=Amount)(kept)
    named = StateModel(Account, version=2, upgrade=from_cents, name="BankAccount")
    handlers.register("y", state=named, body=Amount)(kept)


def test_a_plan_maker_takes_an_order_and_a_context() -> None:
    with pytest.raises(ValueError, match="the handler of 'trip' is called with body, context"):
        SagaKinds().register("trip", body=Amount)(lambda _: None)  # type: ignore[type-var]
