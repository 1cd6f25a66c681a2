"""Models and values of every kind, drawn from a seed, and how they are compared.

What is drawn is good, or is put where it does not belong: by `model_construct`, which checks
nothing. The comparison shares no code with the product's.
"""

import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from functools import partial
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, Union, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    create_model,
    field_serializer,
)

BERLIN = ZoneInfo("Europe/Berlin")


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    ONE = 1
    TWO = "two"
    HALF = 0.5


class Name(str):
    """Text with something beside it."""


class Pair(NamedTuple):
    left: int
    right: str


@dataclass(frozen=True)
class Spot:
    at: int = 0
    note: str = ""


@dataclass(slots=True)
class Slotted:
    at: float = 0.0


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class Lion(Cat):
    mane: bool = True


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    lives: int = 9


class Tail(BaseModel):
    length: float = 0.0


class Fin(BaseModel):
    length: float = 0.0


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)

    sold_by: str = Field(default="", alias="soldBy")
    at: datetime | None = Field(default=None, alias="soldAt")


class Crossed(BaseModel):
    """Read under one name and written under another."""

    model_config = ConfigDict(populate_by_name=True)

    told: int = Field(default=0, validation_alias="heard", serialization_alias="said")


class Hiding(BaseModel):
    shown: int = 0
    hidden: int = Field(default=0, exclude=True)
    _private: int = PrivateAttr(default=0)


class Computing(BaseModel):
    side: int = 0

    @computed_field
    def area(self) -> int:
        return self.side**2


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")

    known: int = 0


class Names(RootModel[list[str]]):
    root: list[str] = []


class Rounding(BaseModel):
    """What is written is less than what is held."""

    amount: Decimal = Decimal(0)

    @field_serializer("amount")
    def in_cents(self, amount: Decimal) -> str:
        return f"{amount:.2f}"


class Unequal:
    """Equal to everything, whatever it holds."""

    def __init__(self, held: int) -> None:
        self.held = held

    def __eq__(self, _: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


type Draw = Callable[[random.Random], Any]
type Leaves = Sequence[tuple[Any, Draw]]


def one_of(*values: Any) -> Draw:
    return lambda draw: draw.choice(values)


ZONES = (
    None,
    UTC,
    BERLIN,
    ZoneInfo("America/St_Johns"),
    timezone(timedelta(hours=-23, minutes=-59)),
)


DAYS = ("2026-10-25T02:30", "2026-03-29T02:30", "0001-01-02", "1890-05-05", "9999-12-30")


def draw_moment(draw: random.Random) -> datetime:
    """A moment of any zone; among them are those of the hours that come twice or not at all."""
    moment = datetime.fromisoformat(draw.choice(DAYS))
    moment += timedelta(microseconds=draw.choice([0, 1, 999_999, draw.randrange(10**10)]))
    return moment.replace(tzinfo=draw.choice(ZONES), fold=draw.choice([0, 0, 1]))


LEAVES: Leaves = [
    (int, one_of(0, 1, -1, 2**53, 2**53 + 1, -(2**70), 10**19)),
    (
        float,
        lambda d: d.choice(
            [
                0.0,
                -0.0,
                1.0,
                0.1 + 0.2,
                1e16,
                1e-7,
                1e22,
                5e-324,
                float("nan"),
                float("inf"),
                d.random(),
            ]
        ),
    ),
    (bool, one_of(True, False)),
    (
        str,
        one_of("", "a", "ü<>", "\u2028", "\x00", "😀", "2026-01-01", "1", "true", "null", "\ud800"),
    ),
    (
        Decimal,
        one_of(
            *map(
                Decimal,
                [
                    "0",
                    "-0",
                    "1.10",
                    "1.1",
                    "1E+5",
                    "12345678901234567.89",
                    "NaN",
                    "0.000000000000000000001",
                ],
            )
        ),
    ),
    (datetime, draw_moment),
    (date, one_of(date(2026, 1, 1), date.min, date.max)),
    (
        time,
        one_of(
            time(8),
            time(2, 30, fold=1),
            time(8, tzinfo=UTC),
            time(8, tzinfo=BERLIN),
            time(23, 59, 59, 999_999),
        ),
    ),
    (
        timedelta,
        one_of(
            timedelta(0),
            timedelta.max,
            timedelta.min,
            timedelta(microseconds=-1),
            timedelta(days=400, microseconds=7),
        ),
    ),
    (UUID, one_of(UUID(int=0), UUID(int=2**128 - 1))),
    (bytes, one_of(b"", b"ab", b"\xff", "ü".encode())),
    (Colour, one_of(*Colour)),
    (Level, one_of(*Level)),
    (Mixed, one_of(*Mixed)),
    (SecretStr, one_of(SecretStr("secret"), SecretStr(""))),
    (Literal["a", 1], one_of("a", 1)),
    (type(None), one_of(None)),
    (PurePosixPath, one_of(PurePosixPath("a/b"))),
    (IPv4Address, one_of(IPv4Address("10.0.0.1"))),
    (Fraction, one_of(Fraction(1, 3))),
    (Json[list[int]], one_of([1, 2])),
    (
        defaultdict[str, int],
        one_of(defaultdict(int, a=1), defaultdict(None), defaultdict(lambda: 5)),
    ),
    (Pair, one_of(Pair(1, "a"))),
    (Spot, one_of(Spot(), Spot(3, "x"))),
    (Slotted, lambda d: Slotted(d.choice([1.5, -0.0, 1]))),
    (Cat, one_of(Cat(), Lion(), Cat.model_construct(lives=True), Cat.model_construct(lives="9"))),
    (Annotated[Cat | Dog, Field(discriminator="kind")], one_of(Cat(), Dog(), Lion())),
    (Tail | Fin, one_of(Tail(), Fin(length=1.0))),
    (Aliased, lambda d: Aliased(soldBy="Ada", soldAt=draw_moment(d))),
    (Crossed, one_of(Crossed(told=0), Crossed(told=1))),
    (Hiding, one_of(Hiding(), Hiding(hidden=1))),
    (Computing, one_of(Computing(side=3))),
    (
        Open,
        lambda d: Open.model_validate({"known": 1, "more": d.choice([1, None, (1,), Colour.RED])}),
    ),
    (Names, one_of(Names(["a"]), Names.model_construct(root=cast("Any", ("a",))))),
    (Rounding, one_of(Rounding(amount=Decimal("1.00")), Rounding(amount=Decimal("1.005")))),
    (
        Any,
        one_of(
            None,
            1,
            1.5,
            "x",
            [1],
            {"a": [None]},
            (1,),
            {1},
            {1: 2},
            {1: "a", "1": "b"},
            object(),
            Unequal(1),
            date(2026, 1, 1),
            Decimal("1.0"),
            Colour.RED,
            Name("n"),
            True,
        ),
    ),
]
# What is sent of these is more than can be read, or has other names.
TWO_WAY = [
    (kind, make) for kind, make in LEAVES if kind not in (Crossed, Computing, Json[list[int]])
]
HASHED = [
    (kind, make)
    for kind, make in LEAVES
    if kind in (int, str, bool, Decimal, datetime, date, UUID, Colour, Level, Mixed, Spot, bytes)
]


def many(make: Draw) -> Draw:
    return lambda draw: [make(draw) for _ in range(draw.randrange(4))]


def draw_kind(  # noqa: PLR0911 - a case for each kind
    draw: random.Random, leaves: Leaves, depth: int = 0
) -> tuple[Any, Draw]:
    """A type for a field, and how its values are drawn."""
    if depth > 2 or draw.random() < 0.4:
        return draw.choice(leaves)
    drawn: tuple[Any, Draw] = draw_kind(draw, leaves, depth + 1)
    inner: Any = drawn[0]
    make = drawn[1]
    match draw.randrange(9):
        case 0:
            return list[inner], many(make)
        case 1:
            key, make_key = draw.choice(HASHED)
            kind: Any = draw.choice([dict, dict, OrderedDict])
            return kind[key, inner], lambda d: kind(
                zip(many(make_key)(d), many(make)(d), strict=False)
            )
        case 2:
            return tuple[inner, ...], lambda d: tuple(many(make)(d))
        case 3 | 4:
            member, make_member = draw.choice(HASHED)
            kind = draw.choice([set, frozenset])
            return kind[member], lambda d: kind(many(make_member)(d))
        case 5:
            return inner | None if not isinstance(inner, str) else inner, lambda d: d.choice(
                [None, make(d)]
            )
        case 6:
            other, make_other = draw_kind(draw, leaves, depth + 1)
            return Union[inner, other], lambda d: d.choice([make, make_other])(d)  # noqa: UP007
        case 7:
            bound = draw.choice([None, None, 5])
            return deque[inner], lambda d: deque(many(make)(d), maxlen=bound)
    return draw_model(draw, leaves, depth + 1)


def draw_model(
    draw: random.Random, leaves: Leaves = LEAVES, depth: int = 0
) -> tuple[type[BaseModel], Draw]:
    """A model, and how its values are drawn: most of them valid, some with what is out of place."""
    kinds = [draw_kind(draw, leaves, depth) for _ in range(draw.randint(1, 3))]
    aliases = [draw.choice([None, None, f"{place}Alias"]) for place in range(len(kinds))]
    declared: dict[str, Any] = {
        f"f{place}": (
            kind | None if not isinstance(kind, str) else kind,
            Field(default=None, alias=alias),
        )
        for place, ((kind, _), alias) in enumerate(zip(kinds, aliases, strict=True))
    }
    config = ConfigDict(
        populate_by_name=True,
        ser_json_inf_nan=draw.choice(["null", "null", "strings", "constants"]),
        ser_json_bytes=draw.choice(["utf8", "base64"]),
        val_json_bytes=draw.choice(["utf8", "base64"]),
    )
    model = create_model("Drawn", __config__=config, **declared)

    def make(d: random.Random) -> Any:
        values = {f"f{n}": make_one(d) for n, (_, make_one) in enumerate(kinds)}
        if d.random() < 0.2:
            values[d.choice([*values])] = d.choice(leaves)[1](d)
        return model.model_construct(**values)

    return model, make


def fingerprint(  # noqa: C901, PLR0911 - a case for each kind
    value: Any, *, ordered: bool = True
) -> Any:
    """What a value is, down to types and digits; equal only for what nobody can tell apart.

    Unless it is `ordered`, the members of a dict have no order.
    """
    kind, told = type(value).__name__, partial(fingerprint, ordered=ordered)
    match value:
        case BaseModel():
            held = {**vars(value), **(value.model_extra or {})}
            return kind, sorted((name, told(part)) for name, part in held.items())
        case bool() | None | Enum():
            return kind, repr(value)
        case int() | float() if type(value) in (int, float):
            # A whole number is one with the float of the same value.
            is_whole = isinstance(value, int) or (value.is_integer() and repr(value) != "-0.0")
            return "number", str(int(value)) if is_whole else repr(value)
        case datetime() | time():
            is_naive = value.utcoffset() is None
            return kind, value.isoformat(), value.tzinfo is None, value.fold if is_naive else 0
        case SecretStr():
            return kind, value.get_secret_value()
        case tuple() | list():
            return kind, [told(part) for part in value]
        case deque():
            return kind, [told(part) for part in value], value.maxlen
        case set() | frozenset():
            return kind, sorted(map(repr, map(told, value)))
        case dict():
            made = getattr(value, "default_factory", None)
            found = [(told(key), told(part)) for key, part in value.items()]
            return kind, made, found if ordered else sorted(found, key=repr)
    if is_dataclass(value):
        return kind, [told(getattr(value, one.name)) for one in fields(value)]
    return kind, str(value)
