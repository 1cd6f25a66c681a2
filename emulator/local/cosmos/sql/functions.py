"""The built-in functions of queries, LIKE and the aggregates.

Arguments of a wrong type, or undefined ones, make a function undefined; only the type checks and
IIF take any. Whether an index can serve a function is told by `is_served`, as "Index usage" in
"Indexing in Azure Cosmos DB" lists it.
"""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add, or_
from typing import Any

from local.cosmos.responses import BadRequest, write_json
from local.cosmos.sql import dates
from local.cosmos.sql.values import (
    UNDEFINED,
    is_number,
    is_same,
    make_identity_key,
    make_sort_key,
    normalize_number,
)

PATTERNS_MAX = 256
MODIFIERS = {"m": re.MULTILINE, "s": re.DOTALL, "i": re.IGNORECASE, "x": re.VERBOSE}
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
    """Return whether an element is the wanted value or, if partial, an object with its members."""
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


def match_expression(text: str, pattern: str, modifiers: str = "") -> Any:
    """RegexMatch: whether a part of a text fits a regular expression."""
    if not set(modifiers) <= MODIFIERS.keys():
        return UNDEFINED
    flags = reduce(or_, (MODIFIERS[letter] for letter in modifiers), re.NOFLAG)
    try:
        return re.search(pattern, text, flags) is not None
    except re.error as error:
        raise BadRequest(f"{pattern!r} is not a regular expression") from error


def write_text(value: Any) -> Any:
    """ToString: JSON of anything but a text, which stays what it is."""
    if value is UNDEFINED or isinstance(value, str):
        return value
    return write_json(normalize_number(value) if is_number(value) else value)


def read_finite(text: str) -> int | float:
    number = normalize_number(float(text))
    if not is_number(number):
        raise ValueError(text)
    return number


def read_json_of_kind(text: str, kind: type | tuple[type, ...]) -> Any:
    """StringToArray and so on: what a text of JSON means, if it is of the wanted kind."""
    try:
        value = json.loads(
            text, parse_int=read_finite, parse_float=read_finite, parse_constant=read_finite
        )
    except ValueError:
        return UNDEFINED
    is_wanted = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    return value if is_wanted else UNDEFINED


def concatenate(*arrays: Any) -> Any:
    return [one for array in arrays for one in array]


def slice_array(array: list[Any], start: float, length: float | None = None) -> Any:
    """Elements from an index on, counted from the end where it is negative."""
    first = max(0, int(start) + (len(array) if start < 0 else 0))
    return array[first:] if length is None else array[first : first + max(0, int(length))]


def intersect(left: list[Any], right: list[Any]) -> Any:
    """SetIntersect: what is in both, once each."""
    wanted = {make_identity_key(one) for one in right}
    return unite([one for one in left if make_identity_key(one) in wanted], [])


def unite(left: list[Any], right: list[Any]) -> Any:
    """SetUnion: what is in either, once each."""
    found: dict[Any, Any] = {}
    for one in left + right:
        found.setdefault(make_identity_key(one), one)
    return list(found.values())


def calculate(implementation: Callable[..., float]) -> BuiltInFunction:
    """A function of one number; what is no number, or too large, is undefined."""

    def apply(number: float) -> Any:
        try:
            return normalize_number(implementation(number))
        except (ArithmeticError, ValueError):
            return UNDEFINED

    return BuiltInFunction(apply, (1,), (float,))


def raise_to_power(base: float, exponent: float) -> Any:
    try:
        return normalize_number(math.pow(base, exponent))
    except (ArithmeticError, ValueError):
        return UNDEFINED


def type_check(implementation: Callable[[Any], bool]) -> BuiltInFunction:
    return BuiltInFunction(implementation, (1,), None, is_served=True)


def text_reader(kind: type | tuple[type, ...]) -> BuiltInFunction:
    return BuiltInFunction(lambda text: read_json_of_kind(text, kind), (1,), (str,))


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
    "SIGN": calculate(lambda number: (number > 0) - (number < 0)),
    "SQRT": calculate(math.sqrt),
    "SQUARE": calculate(lambda number: number * number),
    "TRUNC": calculate(math.trunc),
    "EXP": calculate(math.exp),
    "POWER": BuiltInFunction(raise_to_power, (2,), (float, float)),
    "REGEXMATCH": BuiltInFunction(match_expression, (2, 3), (str, str, str)),
    "TOSTRING": BuiltInFunction(write_text, (1,), None),
    "LTRIM": BuiltInFunction(str.lstrip, (1,), (str,)),
    "RTRIM": BuiltInFunction(str.rstrip, (1,), (str,)),
    "REVERSE": BuiltInFunction(lambda text: text[::-1], (1,), (str,)),
    "STRINGTOARRAY": text_reader(list),
    "STRINGTOBOOLEAN": text_reader(bool),
    "STRINGTONUMBER": text_reader((int, float)),
    "STRINGTOOBJECT": text_reader(dict),
    "ARRAY_CONCAT": BuiltInFunction(concatenate, tuple(range(2, 65)), (list,) * 64),
    "ARRAY_SLICE": BuiltInFunction(slice_array, (2, 3), (list, float, float)),
    "SETINTERSECT": BuiltInFunction(intersect, (2,), (list, list)),
    "SETUNION": BuiltInFunction(unite, (2,), (list, list)),
    "DATETIMEPART": BuiltInFunction(dates.read_date_part, (2,), (str, str)),
    "DATETIMETOTICKS": BuiltInFunction(dates.to_ticks, (1,), (str,)),
    "DATETIMETOTIMESTAMP": BuiltInFunction(dates.to_timestamp, (1,), (str,)),
    "TICKSTODATETIME": BuiltInFunction(dates.from_ticks, (1,), (float,)),
    "TIMESTAMPTODATETIME": BuiltInFunction(dates.from_timestamp, (1,), (float,)),
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
