"""The rule for values: kept to the last digit, or refused by name before anything is committed."""

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    RootModel,
    SecretStr,
    computed_field,
)
from pydantic_core import from_json

from shared.domain.errors import CallerError, InvalidState, NotStorable
from shared.domain.handler import Handled, Handler, HandlerInput, Output, StateModel
from shared.domain.journal import Json, ModelVersion
from shared.engine.handle.handle import encode_canonically, keep_state, parse_state, run_pure
from tests.programs import run_python
from tests.sizes import FIRST_SEED, IS_PROOF
from tests.values import LEAVES, TWO_WAY, Leaves, Unequal, draw_model, fingerprint
from tests.world import Amount, message

EXAMPLES = 20_000 if IS_PROOF else 300
BERLIN = ZoneInfo("Europe/Berlin")


def drawn(leaves: Leaves = LEAVES) -> Iterator[tuple[int, BaseModel]]:
    """Values of models of every kind, each with its seed."""
    first = int(os.environ.get(FIRST_SEED, "0"))
    for seed in range(first, first + EXAMPLES):
        draw = random.Random(seed)
        _, make = draw_model(draw, leaves)
        yield seed, make(draw)


def read_again(state: BaseModel, kept: Json) -> BaseModel:
    """The state that the next handler finds, after the store had it as text."""
    declared = StateModel(type(state))
    stored = json.loads(json.dumps(kept))
    return parse_state(declared, HandlerInput(stored, model=ModelVersion(declared.name, 1)))


def as_one_kind(value: Any) -> Any:
    """A JSON document in which 1.0 is 1, with the members of lists in order, as a set has none."""
    match value:
        case dict():
            return {name: as_one_kind(one) for name, one in value.items()}
        case list():
            return sorted(map(as_one_kind, value), key=repr)
        case float() if value.is_integer():
            return int(value)
    return value


def is_kept_by_json(value: BaseModel) -> bool:
    """Say whether a value comes back from its JSON as it was, without asking the product."""
    options: dict[str, Any] = {"by_alias": True, "round_trip": True, "warnings": False}
    try:
        text = value.model_dump_json(**options)
        again = type(value).model_validate_json(text)
        both = (text, again.model_dump_json(**options))
        texts = [from_json(one, allow_inf_nan=False) for one in both]
    except Exception:
        return False
    is_same_text = repr(as_one_kind(texts[0])) == repr(as_one_kind(texts[1]))
    return is_same_text and fingerprint(value) == fingerprint(again)


def attempt(keep: Callable[[], Any]) -> tuple[Any, str | None]:
    """What is kept, or why it is refused."""
    try:
        return keep(), None
    except (InvalidState, NotStorable) as error:
        return None, str(error)


def test_a_state_comes_back_to_the_last_digit_or_is_refused_by_name() -> None:
    kept, refused = 0, 0
    for seed, state in drawn():
        declared = StateModel(type(state))
        is_good = is_kept_by_json(state)
        document, why = attempt(lambda: keep_state(declared, state, "it"))  # noqa: B023 - at once
        if why is not None:
            refused += 1
            assert not is_good, f"seed {seed}: {state!r} is refused: {why}"
            assert re.search(r"\bf\d|\b\dAlias", why), f"seed {seed}: {why}"
            continue
        kept += 1
        again = read_again(state, document)
        assert fingerprint(again) == fingerprint(state), f"seed {seed}: {state!r} is {again!r}"
        text, text_again = (
            json.dumps(one).replace(".0,", ",").replace(".0}", "}").replace(".0]", "]")
            for one in (document, keep_state(declared, again, "it"))
        )
        assert text == text_again, f"seed {seed}: {state!r}"
    assert min(kept, refused) > EXAMPLES / 4


def test_a_body_comes_back_to_the_last_digit_or_is_refused_by_name() -> None:
    kept, refused = 0, 0
    for seed, body in drawn(TWO_WAY):
        is_good = is_kept_by_json(body)
        text, why = attempt(lambda: encode_canonically(body, "its output 'told'"))  # noqa: B023
        if why is not None:
            refused += 1
            assert not is_good, f"seed {seed}: {body!r} is refused: {why}"
            assert why.startswith("its output 'told' is"), f"seed {seed}: {why}"
            continue
        kept += 1
        again = type(body).model_validate_json(text)
        before, after = (fingerprint(one, ordered=False) for one in (body, again))
        assert before == after, f"seed {seed}: {body!r} is {again!r}"
        text_again = encode_canonically(again, "it")
        assert as_one_kind(json.loads(text_again)) == as_one_kind(json.loads(text)), f"seed {seed}"
    assert min(kept, refused) > EXAMPLES / 4


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Shelf(BaseModel):
    left: int = 0


class Special(Shelf):
    limit: int = 0


class Crossed(BaseModel):
    """Read under one name and written under another."""

    told: int = Field(default=0, validation_alias="heard", serialization_alias="said")


class State(BaseModel):
    """A state with a field for each way of losing something."""

    whole: int = 0
    rate: float = 0.0
    maybe: float | None = None
    price: Decimal = Decimal(0)
    opened: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    at: time = time(8)
    name: str = ""
    raw: bytes = b""
    either: Shelf | Special = Shelf()
    shelf: Shelf = Shelf()
    shelves: list[Shelf] = []
    any: Any = None
    secret: SecretStr = SecretStr("")
    counts: dict[int | str, int] = {}
    colours: set[str] = set()
    crossed: Crossed = Crossed()
    hidden: int = Field(default=0, exclude=True)


def returning(handled: Any) -> Any:
    """What is kept of what a handler returned."""
    handler = Handler("keep", StateModel(State), Amount, lambda *_: handled)
    return run_pure(handler, HandlerInput(), message(0, kind="keep"))


@pytest.mark.parametrize(
    "fields",
    [
        {"whole": True},
        {"whole": Level.LOW},
        {"rate": True},
        {"maybe": float("nan")},
        {"price": 1.5},
        {"opened": datetime.fromisoformat("2026-10-25T02:30").replace(fold=1)},
        {"opened": datetime(1890, 1, 1, tzinfo=BERLIN)},
        {"at": time(8, tzinfo=BERLIN)},
        {"name": Colour.RED},
        {"name": "\ud800"},
        {"raw": b"\xff"},
        {"shelf": Special()},
        {"shelves": [Shelf(), Special()]},
        {"any": (1, 2)},
        {"any": Colour.RED},
        {"any": {1: "one"}},
        {"any": timedelta(1)},
        {"secret": SecretStr("x")},
        {"counts": {1: 1, "1": 2}},
        {"crossed": Crossed.model_validate({"heard": 1})},
        {"hidden": 1},
        {"misspelt": 1},
    ],
)
def test_what_json_does_not_keep_is_refused_by_name(fields: dict[str, Any]) -> None:
    (name,) = fields
    state = State().model_copy(update=fields)

    with pytest.raises(InvalidState, match=rf"the handler of 'keep' returned .*{name}.*") as found:
        returning(state)
    if "no valid" not in str(found.value):
        assert "give the field a type whose JSON is the whole value" in str(found.value)
    # The others go the same way, whatever reads them; only names may differ there.
    if name != "crossed":
        told = Handled(State(), outputs=(Output("told", state),))
        for other in (told, Handled(State(), answer=state)):
            with pytest.raises(NotStorable, match=rf"its (output 'told'|answer) is .*{name}"):
                returning(other)


@pytest.mark.parametrize(
    "fields",
    [
        {"rate": 3},
        {"rate": -0.0, "maybe": 5e-324},
        {"price": Decimal("1.10"), "opened": datetime.fromisoformat("2026-01-01T00:00:00.000001")},
        {"opened": datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)},
        {"either": Special(limit=3), "shelves": [Shelf(left=n) for n in range(3)]},
        {"any": {"a": [1, 1.5, None, True, "x"]}, "colours": {"b", "a", "<"}},
    ],
)
def test_what_json_keeps_is_kept(fields: dict[str, Any]) -> None:
    state = State().model_copy(update=fields)

    again = read_again(state, returning(state).state)

    assert fingerprint(again) == fingerprint(state)


class Boxed(BaseModel):
    """A field of a class that pydantic does not know, of which a validator keeps the half."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    box: Annotated[
        Unequal,
        PlainValidator(lambda box: box if isinstance(box, Unequal) else Unequal(int(box))),
        PlainSerializer(lambda box: min(box.held, 9)),
    ] = Unequal(0)


def test_an_object_that_is_equal_to_everything_is_known_by_what_it_holds() -> None:
    declared = StateModel(Boxed)

    assert keep_state(declared, Boxed(box=Unequal(3)), "it") == {"box": 3}
    with pytest.raises(InvalidState, match=r"with 'box\.held' as JSON does not keep it"):
        keep_state(declared, Boxed(box=Unequal(12)), "it")


class Told(BaseModel):
    """What is told to others: more than it holds, under names of its own."""

    side: int = Field(serialization_alias="Side")

    @computed_field
    def area(self) -> int:
        return self.side**2


def test_what_is_sent_or_answered_may_have_names_of_its_own_and_computed_fields() -> None:
    told = Told(side=3)

    result = returning(Handled(State(), outputs=(Output("told", told),), answer=told))

    assert result.batches[0].messages[0].body == b'{"Side":3,"area":9}'
    assert result.answer == {"Side": 3, "area": 9}


class Clashing(BaseModel):
    one: int = Field(default=1, serialization_alias="same")
    other: int = Field(default=2, serialization_alias="same")


CLASH = Output("told", Clashing.model_construct(one=3, other=4))


class Names(RootModel[list[str]]):
    """An answer without named fields."""


def test_an_answer_of_another_model_than_the_handler_declares_is_refused() -> None:
    def answer(answered: BaseModel | None) -> Any:
        handled = Handled(State(), answer=answered)
        handler = Handler("keep", StateModel(State), Amount, lambda *_: handled, answer=Amount)
        return run_pure(handler, HandlerInput(), message(0, kind="keep")).answer

    assert answer(Amount(amount=3)) == {"amount": 3}
    assert answer(None) is None
    with pytest.raises(NotStorable, match="its answer is a State, not a Amount"):
        answer(State())


@pytest.mark.parametrize(
    ("handled", "said"),
    [
        (Handled(State(), outputs=(CLASH,)), "Clashing with 'one', 'other' as JSON"),
        (Handled(State(), answer=Names(["a"])), "its answer is no JSON object"),
        (
            Handled(State(), outputs=(Output("told", {"a": 1}),)),  # type: ignore[arg-type]
            "its output 'told' is a dict, not a pydantic model",
        ),
    ],
    ids=["two fields of one name", "an answer without names", "no model"],
)
def test_what_cannot_be_sent_or_answered_is_refused(handled: Any, said: str) -> None:
    with pytest.raises(CallerError, match=said):
        returning(handled)


def test_a_set_is_written_in_order_wherever_it_lies() -> None:
    names = {f"c{n}" for n in range(9)}
    nested = State(colours=names)
    told = Output("told", nested)

    result = returning(Handled(nested, outputs=(told,), answer=nested))

    assert result.state["colours"] == sorted(names)
    assert result.answer is not None
    assert result.answer["colours"] == sorted(names)
    assert json.loads(result.batches[0].messages[0].body)["colours"] == sorted(names)


def test_a_set_has_the_same_text_in_every_process() -> None:
    program = (
        "from tests.unit.shared.test_values import State, returning\n"
        "from shared.domain.handler import Handled, Output\n"
        "state = State(colours={f'c{n}' for n in range(9)})\n"
        "result = returning(Handled(state, outputs=(Output('told', state),)))\n"
        "print(result.state['colours'], result.batches[0].messages[0].body)"
    )

    runs = {run_python(program, PYTHONHASHSEED=seed) for seed in ("1", "2", "3")}

    assert len(runs) == 1
