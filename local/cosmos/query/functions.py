"""The built-in functions of queries, and LIKE.

Arguments of a wrong type, or undefined ones, make a function undefined; only the type checks and
IIF take any. Whether an index can serve a function is told by `is_served`, as "Index usage" in
"Indexing in Azure Cosmos DB" lists it.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from local.cosmos.query.values import UNDEFINED, is_number, is_same, normalize_number
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
        """The value for these arguments, which may be UNDEFINED."""
        if self.types is not None and not all(map(self._fits, range(len(values)), values)):
            return UNDEFINED
        return self.implementation(*values)

    def _fits(self, at: int, value: Any) -> bool:
        types = self.types or ()
        wanted = types[at] if at < len(types) else bool
        if wanted is float:
            return is_number(value)
        return value is not UNDEFINED and isinstance(value, wanted)


def fold_case(text: str, ignores_case: bool) -> str:
    return text.lower() if ignores_case else text


def starts_with(text: str, prefix: str, ignores_case: bool = False) -> bool:
    return fold_case(text, ignores_case).startswith(fold_case(prefix, ignores_case))


def ends_with(text: str, suffix: str, ignores_case: bool = False) -> bool:
    return fold_case(text, ignores_case).endswith(fold_case(suffix, ignores_case))


def contains(text: str, part: str, ignores_case: bool = False) -> bool:
    return fold_case(part, ignores_case) in fold_case(text, ignores_case)


def string_equals(text: str, other: str, ignores_case: bool = False) -> bool:
    return fold_case(text, ignores_case) == fold_case(other, ignores_case)


def substring(text: str, start: float, length: float) -> str:
    """A part of a text by its zero-based start and its length."""
    begin = max(0, int(start))
    return text[begin : begin + max(0, int(length))]


def take_left(text: str, length: float) -> str:
    return text[: max(0, int(length))]


def take_right(text: str, length: float) -> str:
    return text[len(text) - min(len(text), max(0, int(length))) :]


def array_contains(elements: list[Any], wanted: Any, is_partial: Any = False) -> Any:
    """Whether an element is the wanted value or, if partial, an object that has its members."""
    if wanted is UNDEFINED or not isinstance(elements, list) or not isinstance(is_partial, bool):
        return UNDEFINED
    return any(has_members(one, wanted) if is_partial else is_same(one, wanted) for one in elements)


def has_members(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, or an object with at least its members."""
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
    """One wildcard, set or character of a LIKE pattern."""
    if part in ("%", "_"):
        return {"%": ".*", "_": "."}[part]
    if len(part) == 1:
        return re.escape(part)
    negation = "^" if part.startswith("[^") else ""
    inside = part[1 + len(negation) : -1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[{negation}{inside}]" if inside else re.escape(part)


def type_check(implementation: Callable[[Any], bool]) -> BuiltInFunction:
    return BuiltInFunction(implementation, (1,), None, is_served=True)


def text_check(implementation: Callable[..., bool]) -> BuiltInFunction:
    return BuiltInFunction(implementation, (2, 3), (str, str), is_served=True)


FUNCTIONS: dict[str, BuiltInFunction] = {
    "IS_DEFINED": type_check(lambda value: value is not UNDEFINED),
    "IS_NULL": type_check(lambda value: value is None),
    "IS_BOOL": type_check(lambda value: isinstance(value, bool)),
    "IS_NUMBER": type_check(is_number),
    "IS_STRING": type_check(lambda value: isinstance(value, str)),
    "IS_ARRAY": type_check(lambda value: isinstance(value, list)),
    "IS_OBJECT": type_check(lambda value: isinstance(value, dict)),
    "IS_PRIMITIVE": type_check(
        lambda value: isinstance(value, str | int | float | bool | type(None))
    ),
    "STARTSWITH": text_check(starts_with),
    "ENDSWITH": text_check(ends_with),
    "CONTAINS": text_check(contains),
    "STRINGEQUALS": text_check(string_equals),
    "LOWER": BuiltInFunction(str.lower, (1,), (str,)),
    "UPPER": BuiltInFunction(str.upper, (1,), (str,)),
    "TRIM": BuiltInFunction(str.strip, (1,), (str,)),
    "LENGTH": BuiltInFunction(len, (1,), (str,)),
    "CONCAT": BuiltInFunction(lambda *texts: "".join(texts), tuple(range(2, 65)), (str,) * 64),
    "REPLACE": BuiltInFunction(str.replace, (3,), (str, str, str)),
    "SUBSTRING": BuiltInFunction(substring, (3,), (str, float, float)),
    "LEFT": BuiltInFunction(take_left, (2,), (str, float)),
    "RIGHT": BuiltInFunction(take_right, (2,), (str, float)),
    "INDEX_OF": BuiltInFunction(str.find, (2,), (str, str)),
    "ARRAY_CONTAINS": BuiltInFunction(array_contains, (2, 3), None, is_served=True),
    "ARRAY_LENGTH": BuiltInFunction(len, (1,), (list,)),
    "ABS": BuiltInFunction(abs, (1,), (float,)),
    "CEILING": BuiltInFunction(lambda value: normalize_number(math.ceil(value)), (1,), (float,)),
    "FLOOR": BuiltInFunction(lambda value: normalize_number(math.floor(value)), (1,), (float,)),
    "ROUND": BuiltInFunction(round_half_up, (1,), (float,)),
    "IIF": BuiltInFunction(
        lambda test, chosen, other: chosen if test is True else other, (3,), None
    ),
}
BUILT_IN = FUNCTIONS | {"LIKE": BuiltInFunction(like, (2, 3), (str, str, str), is_served=True)}
