"""The built-in functions of queries, LIKE and the aggregates.

Arguments of a wrong type, or undefined ones, make a function undefined; only the type checks and
IIF take any. Whether an index can serve a function is told by `is_served`, as "Index usage" in
"Indexing in Azure Cosmos DB" lists it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add
from typing import Any

from local.cosmos.query.values import (
    UNDEFINED,
    is_number,
    is_same,
    make_sort_key,
    normalize_number,
)
from local.cosmos.responses import BadRequest

PATTERNS_MAX = 256
PATTERN_PARTS = re.compile(r"%|_|\[\^?\]?[^\]]*\]|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class BuiltInFunction:
    """A function with the numbers of arguments it takes, and what each must be.

    `types` None takes values of any type, even undefined. Arguments beyond `types` are optional
    booleans.
    """

    implementation: Callable[..., Any]
    counts: tuple[int, ...]
    types: tuple[type, ...] | None
    is_served: bool = False

    def __call__(self, values: list[Any]) -> Any:
        if self.types is not None and not all(map(self._fits, range(len(values)), values)):
            return UNDEFINED
        return self.implementation(*values)

    def _fits(self, at: int, value: Any) -> bool:
        types = self.types or ()
        wanted = types[at] if at < len(types) else bool
        if wanted is float:
            return is_number(value)
        return value is not UNDEFINED and isinstance(value, wanted)


def substring(text: str, start: float, length: float) -> str:
    """A part of a text by its zero-based start and its length."""
    begin = max(0, int(start))
    return text[begin : begin + max(0, int(length))]


def take_right(text: str, length: float) -> str:
    return text[len(text) - min(len(text), max(0, int(length))) :]


def array_contains(elements: list[Any], wanted: Any, is_partial: Any = False) -> Any:
    """Whether an element is the wanted value or, if partial, an object that has its members."""
    if wanted is UNDEFINED or not isinstance(elements, list) or not isinstance(is_partial, bool):
        return UNDEFINED
    return any(has_members(one, wanted) if is_partial else is_same(one, wanted) for one in elements)


def has_members(value: Any, wanted: Any) -> bool:
    if not (isinstance(value, dict) and isinstance(wanted, dict)):
        return is_same(value, wanted)
    return all(name in value and is_same(value[name], wanted[name]) for name in wanted)


def round_half_up(number: float) -> Any:
    """The nearest whole number, halves away from zero."""
    return normalize_number(math.copysign(math.floor(abs(number) + 0.5), number))


def like(text: str, pattern: str, escape: str = "") -> bool:
    return compile_pattern(pattern, escape).fullmatch(text) is not None


@lru_cache(maxsize=PATTERNS_MAX)
def compile_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression; what follows the escape character is itself.

    % is for any text, _ for one character, [a-z] and [^a-z] for one of a set.
    """
    parts = []
    is_escaped = False
    for part in PATTERN_PARTS.findall(pattern):
        if is_escaped or part != escape:
            parts.append(re.escape(part) if is_escaped else translate_part(part))
        is_escaped = not is_escaped and part == escape
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise BadRequest(f"{pattern!r} is not a pattern for LIKE") from error


def translate_part(part: str) -> str:
    if len(part) == 1:
        return {"%": ".*", "_": "."}.get(part, re.escape(part))
    negation = "^" if part.startswith("[^") else ""
    inside = part[1 + len(negation) : -1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[{negation}{inside}]" if inside else re.escape(part)


def type_check(implementation: Callable[[Any], bool]) -> BuiltInFunction:
    return BuiltInFunction(implementation, (1,), None, is_served=True)


def text_check(implementation: Callable[[str, str], bool]) -> BuiltInFunction:
    """A check of two texts, which ignores the case of letters if a third argument is true."""

    def check(text: str, other: str, ignores_case: bool = False) -> bool:
        texts = (text.lower(), other.lower()) if ignores_case else (text, other)
        return implementation(*texts)

    return BuiltInFunction(check, (2, 3), (str, str), is_served=True)


FUNCTIONS: dict[str, BuiltInFunction] = {
    "IS_DEFINED": type_check(lambda value: value is not UNDEFINED),
    "IS_NULL": type_check(lambda value: value is None),
    "IS_BOOL": type_check(lambda value: isinstance(value, bool)),
    "IS_NUMBER": type_check(is_number),
    "IS_STRING": type_check(lambda value: isinstance(value, str)),
    "IS_ARRAY": type_check(lambda value: isinstance(value, list)),
    "IS_OBJECT": type_check(lambda value: isinstance(value, dict)),
    "IS_PRIMITIVE": type_check(lambda value: isinstance(value, str | int | float | None)),
    "STARTSWITH": text_check(str.startswith),
    "ENDSWITH": text_check(str.endswith),
    "CONTAINS": text_check(str.__contains__),
    "STRINGEQUALS": text_check(str.__eq__),
    "LOWER": BuiltInFunction(str.lower, (1,), (str,)),
    "UPPER": BuiltInFunction(str.upper, (1,), (str,)),
    "TRIM": BuiltInFunction(str.strip, (1,), (str,)),
    "LENGTH": BuiltInFunction(len, (1,), (str,)),
    "CONCAT": BuiltInFunction(lambda *texts: "".join(texts), tuple(range(2, 65)), (str,) * 64),
    "REPLACE": BuiltInFunction(str.replace, (3,), (str, str, str)),
    "SUBSTRING": BuiltInFunction(substring, (3,), (str, float, float)),
    "LEFT": BuiltInFunction(lambda text, n: substring(text, 0, n), (2,), (str, float)),
    "RIGHT": BuiltInFunction(take_right, (2,), (str, float)),
    "INDEX_OF": BuiltInFunction(str.find, (2,), (str, str)),
    "ARRAY_CONTAINS": BuiltInFunction(array_contains, (2, 3), None, is_served=True),
    "ARRAY_LENGTH": BuiltInFunction(len, (1,), (list,)),
    "ABS": BuiltInFunction(abs, (1,), (float,)),
    "CEILING": BuiltInFunction(lambda value: normalize_number(math.ceil(value)), (1,), (float,)),
    "FLOOR": BuiltInFunction(lambda value: normalize_number(math.floor(value)), (1,), (float,)),
    "ROUND": BuiltInFunction(round_half_up, (1,), (float,)),
    "IIF": BuiltInFunction(lambda test, yes, no: yes if test is True else no, (3,), None),
}
BUILT_IN = FUNCTIONS | {"LIKE": BuiltInFunction(like, (2, 3), (str, str, str), is_served=True)}


# What aggregates make of the values of all rows, those undefined left out. A value of a type that
# an aggregate cannot take makes the whole of it undefined: anything but numbers for SUM and AVG,
# arrays and objects for MIN and MAX. Numbers are added as they come: Python's own `sum` rounds in
# a way that the service does not promise.


def add_up(values: list[Any]) -> Any:
    """The sum, which is zero of no values."""
    return normalize_number(reduce(add, values, 0)) if all(map(is_number, values)) else UNDEFINED


def average(values: list[Any]) -> Any:
    if not values or not all(map(is_number, values)):
        return UNDEFINED
    return normalize_number(reduce(add, values, 0) / len(values))


def find_extreme(values: list[Any], choose: Callable[..., Any]) -> Any:
    """The lowest or highest of scalars: null, booleans, numbers, strings."""
    if not values or any(isinstance(value, list | dict) for value in values):
        return UNDEFINED
    return choose(values, key=make_sort_key)


AGGREGATES: dict[str, Callable[[list[Any]], Any]] = {
    "COUNT": len,
    "SUM": add_up,
    "AVG": average,
    "MIN": lambda values: find_extreme(values, min),
    "MAX": lambda values: find_extreme(values, max),
}
