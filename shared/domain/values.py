"""The one rule for values: what JSON keeps of a value is kept, and the rest is refused by name.

A value is written as JSON, read back by its own model, and written again. It is kept where both
texts are the same, and where what was read has the same types and digits down to the last part.
Python's `==` decides nothing: to it True is 1, and Decimal("1.10") is Decimal("1.1"). A whole
number and the float of the same value are one, as to a store. A set is written in order, so that
its text is the same in every process.
"""

import json
import marshal
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property
from itertools import islice
from typing import Any

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import from_json

from shared.domain.json_text import keep_json
from shared.domain.reports import shorten

# How many complaints about one value are told.
COMPLAINTS_MAX = 20
NUMBERS = frozenset({int, float})
PLAIN = frozenset({dict, list, tuple, set, frozenset})
# What came back for what was given, where that is no loss.
NOTHING_ALLOWED: Collection[tuple[type, type]] = frozenset()

# Where a value is not kept, and why: ("held.limit", "a Decimal comes back as a str").
type Loss = tuple[str, str]


def explain_losses(value: BaseModel, *, by_alias: bool = True) -> str | None:
    """Return in words what JSON does not keep of a value; None where it keeps all of it.

    Fields are named, values are not told. Without `by_alias` the names that JSON has for fields do
    not count: so it is for what is sent, which nobody reads by this model.
    """
    try:
        text = write_value(value, by_alias=by_alias)
        from_json(text, allow_inf_nan=False)
    except Exception as error:
        found = name_unwritable(value)
        return tell_losses(value, [(name, f"it has no JSON: {error}") for name in found or ["it"]])
    try:
        names: Any = {}
        if not by_alias:
            keep_json(write_value(value))
            names = {"by_alias": False, "by_name": True}
        again = type(value).model_validate_json(text, **names)
        losses = [*islice(differing(value, again), COMPLAINTS_MAX)]
        if not losses and (text_again := write_value(again, by_alias=by_alias)) != text:
            changed = changed_fields(from_json(text), from_json(text_again))
            losses = [(name, "it is written again as another text") for name in changed]
    except ValidationError as error:
        return f"no valid {type(value).__name__} as JSON: {summarise(error)}"
    except Exception as error:
        return f"a {type(value).__name__} that cannot be read back: {type(error).__name__}: {error}"
    return tell_losses(value, losses) if losses else None


def write_value(value: BaseModel, *, by_alias: bool = True, only: str | None = None) -> str:
    """A value, or one field of it, as the JSON of which reading makes it again."""
    include = None if only is None else {only}
    return value.model_dump_json(
        by_alias=by_alias, round_trip=True, warnings=False, include=include
    )


def name_unwritable(value: BaseModel) -> list[str]:
    """Return the fields that JSON has no text for."""
    found = []
    for name in held_by(value):
        try:
            from_json(write_value(value, only=name), allow_inf_nan=False)
        except Exception:
            found.append(name)
    return found[:COMPLAINTS_MAX]


def tell_losses(value: BaseModel, losses: Iterable[Loss]) -> str:
    """Return in one line what is lost, and what to do about it."""
    found = dict(losses)
    first, named = next(iter(found)), ", ".join(map(repr, found))
    lost = f"{type(value).__name__} with {named} as JSON does not keep it"
    remedy = "give the field a type whose JSON is the whole value, or convert the value to its type"
    return shorten(f"{lost} ({first}: {found[first]}): {remedy}")


def differing(
    given: Any,
    read: Any,
    name: str = "",
    allowed: Collection[tuple[type, type]] = NOTHING_ALLOWED,
) -> Iterator[Loss]:
    """The parts of a value that were read back as something else."""
    if given is read:
        return
    kind, came = type(given), type(read)
    if kind is not came and (kind, came) not in allowed:
        if not ({kind, came} <= NUMBERS and given == read):
            yield name, f"{kind.__name__} comes back as {came.__name__}"
        return
    if not is_same_leaf(given, read):
        yield name, f"{kind.__name__} comes back with another value"
        return
    if kind in PLAIN or isinstance(given, BaseModel):
        # Bytes of plain data tell types and digits without a walk; there are none of anything else.
        with suppress(ValueError, TypeError, AttributeError):
            if pack(given) == pack(read):
                return
    before, after = parts_of(given, read), parts_of(read, read)
    within = f"{name}." if name else ""
    if [label for label, _ in before] != [label for label, _ in after]:
        gone = sorted(dict(before).keys() ^ dict(after).keys())
        for place in [f"{within}{label}" for label in gone] or [name]:
            yield place, "some of it is gone, or was not there"
        return
    for (label, part), (_, part_read) in zip(before, after, strict=True):
        yield from differing(part, part_read, f"{within}{label}", allowed)


def pack(value: Any) -> bytes:
    """The bytes of plain data, or of what models hold; raises an error for anything else."""
    if isinstance(value, BaseModel):
        value = [value]
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        value = [(id(type(one)), vars(one), one.__pydantic_extra__) for one in value]
    return marshal.dumps(value, 2)


def is_same_leaf(given: Any, read: Any) -> bool:
    """Say whether two values of one type are the same, apart from their parts."""
    # What an object holds says more than its own `==`.
    is_same = is_dataclass(given) or hasattr(given, "__dict__")
    match given:
        case Enum():
            is_same = False
        case float():
            # The text tells -0.0 and NaN.
            is_same = float.__repr__(given) == float.__repr__(read)
        case str() | bytes() | int():
            base: Any = next(base for base in (str, bytes, int) if isinstance(given, base))
            is_same = bool(base.__eq__(given, read))
        case Decimal():
            is_same = given.as_tuple() == read.as_tuple()
        case datetime() | time():
            is_same = tell_moment(given) == tell_moment(read)
        case dict() | list() | tuple() | set() | frozenset() | deque():
            is_same = True
        case _ if not is_same:
            with suppress(Exception):
                is_same = bool(given == read)
    return is_same


def tell_moment(value: datetime | time) -> tuple[str, bool, int]:
    """A date or time by the clock on the wall and its offset. The name of a zone is not kept."""
    # Of an hour that comes twice the offset tells which it is, and `fold` where there is none.
    fold = value.fold if value.utcoffset() is None else 0
    return value.isoformat(), value.tzinfo is None, fold


def held_by(value: Any) -> dict[str, Any]:
    """The fields and attributes of a value, without what is made again of them."""
    held: dict[str, Any] = getattr(value, "__dict__", {})
    if is_dataclass(value):
        held = {one.name: getattr(value, one.name, None) for one in fields(value)}
    if isinstance(value, BaseModel):
        held = held | (value.model_extra or {})
    kind: Any = type(value)
    made_again = cached_names(kind)
    return {name: part for name, part in held.items() if name not in made_again}


def parts_of(value: Any, read: Any) -> list[tuple[str, Any]]:
    """The parts of a value with their names, those of a set in the order that `read` has."""
    parts: list[tuple[str, Any]] = sorted(held_by(value).items(), key=lambda one: one[0])
    match value:
        case dict():
            for key, part in value.items():
                parts += [(f"key {key}", key), (str(key), part)]
        case list() | tuple() | deque():
            parts += [(str(place), part) for place, part in enumerate(value)]
        case set() | frozenset():
            places, members = {part: place for place, part in enumerate(read)}, [*value]
            found = sorted((find_place(part, places), at) for at, part in enumerate(members))
            parts += [(str(place), members[at]) for place, at in found]
    match value:
        case deque():
            parts.append(("maxlen", value.maxlen))
        case defaultdict():
            parts.append(("default_factory", value.default_factory))
    return parts


def find_place(part: Any, places: Mapping[Any, int]) -> int:
    """Return the place of a set's member among others; -1 where it is not there."""
    if part in places:
        return places[part]
    # A time of an hour that comes twice is equal to none of another zone.
    return next((at for one, at in places.items() if not any(differing(part, one))), -1)


@cache
def cached_names(kind: Any) -> frozenset[str]:
    """The names of a class's cached properties, whose values lie beside its fields."""
    named = {name: one for base in reversed(kind.__mro__) for name, one in vars(base).items()}
    return frozenset(name for name, one in named.items() if isinstance(one, cached_property))


@cache
def has_sets(model: Any) -> bool:
    """Say whether a model declares a set anywhere, whose members have no order."""

    def declares(schema: Any) -> bool:
        match schema:
            case {"type": "set" | "frozenset"}:
                return True
            case Mapping():
                return any(map(declares, schema.values()))
            case list() | tuple():
                return any(map(declares, schema))
        return False

    return declares(model.__pydantic_core_schema__)


def make_document(value: BaseModel, *, round_trip: bool) -> Any:
    """A value as a JSON document, its sets in order.

    With `round_trip` the value can be read back; without it has what the model computes as well.
    """
    text = value.model_dump_json(by_alias=True, round_trip=round_trip, warnings=False)
    document = from_json(text, allow_inf_nan=False)
    return sort_sets(value, document) if has_sets(type(value)) else document


def sort_sets(value: Any, document: Any) -> Any:
    """The document of a value, with the members of its sets in the order of their text."""
    if isinstance(value, RootModel):
        return sort_sets(value.root, document)
    match document:
        case dict() if isinstance(value, dict):
            for part, key in zip(value.values(), [*document], strict=True):
                document[key] = sort_sets(part, document[key])
        case dict():
            declared = type(value).model_fields if isinstance(value, BaseModel) else {}
            for name, part in held_by(value).items():
                key = (declared[name].serialization_alias if name in declared else None) or name
                if key in document:
                    document[key] = sort_sets(part, document[key])
        case list() if isinstance(value, Collection) and len(value) == len(document):
            written = list(map(sort_sets, value, document))
            if isinstance(value, set | frozenset):
                written.sort(key=lambda one: json.dumps(one, sort_keys=True))
            return written
    return document


def changed_fields(stored: Any, read: Any) -> list[str]:
    """Return the fields that reading would change. A list in another order is a set."""
    if not (isinstance(stored, Mapping) and isinstance(read, Mapping)):
        return [] if normalise(stored) == normalise(read) else ["another value"]
    unknown = [f"unknown {name!r}" for name in sorted(stored.keys() - read.keys())]
    missing = [f"missing {name!r}" for name in sorted(read.keys() - stored.keys())]
    both = sorted(stored.keys() & read.keys())
    changed = [f"another {n!r}" for n in both if normalise(stored[n]) != normalise(read[n])]
    return unknown + missing + changed


def normalise(value: Any) -> str:
    """A JSON value as text, its lists in order; 1.0 is 1, as in a store that has one kind."""

    def order(one: Any) -> Any:
        match one:
            case Mapping():
                return {name: order(each) for name, each in one.items()}
            case list():
                return sorted(map(order, one), key=lambda each: json.dumps(each, sort_keys=True))
            case float() if one.is_integer():
                return int(one)
        return one

    return json.dumps(order(value), sort_keys=True)


def summarise(error: ValidationError) -> str:
    """A validation error in one line: field and complaint, without the input."""
    complaints = error.errors(include_url=False, include_input=False, include_context=False)
    lines = (
        f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in complaints[:COMPLAINTS_MAX]
    )
    return shorten("; ".join(lines))
