"""The built-in functions of queries.

Arguments of a wrong type, or undefined ones, make a function undefined; only the type checks and
IIF take any. Whether an index can serve a function is told by `is_served`, as "Index usage" in
"Indexing in Azure Cosmos DB" lists it.

Patterns of LIKE: % for any text, _ for one character, [a-z] and [^a-z] for one of a set.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from local.cosmos.answers import Refusal
from local.cosmos.query.values import UNDEFINED, is_number, is_same, number_of

PATTERNS_MAX = 256
PARTS = re.compile(r"%|_|\[\^?\]?[^\]]*\]|.", re.DOTALL)


def like(text: str, pattern: str, escape: str = "") -> bool:
    """Whether a text fits a pattern as a whole."""
    return like_pattern(pattern, escape).fullmatch(text) is not None


@lru_cache(maxsize=PATTERNS_MAX)
def like_pattern(pattern: str, escape: str) -> re.Pattern[str]:
    """A LIKE pattern as a regular expression; what follows the escape character is itself."""
    parts = []
    is_escaped = False
    for part in PARTS.findall(pattern):
        if is_escaped or part != escape:
            parts.append(re.escape(part) if is_escaped else like_part(part))
        is_escaped = not is_escaped and part == escape
    try:
        return re.compile("".join(parts), re.DOTALL)
    except re.error as error:
        raise Refusal(400, f"{pattern!r} is not a pattern for LIKE") from error


def like_part(part: str) -> str:
    """One wildcard, set or character of a LIKE pattern."""
    if part in ("%", "_"):
        return {"%": ".*", "_": "."}[part]
    if len(part) == 1:
        return re.escape(part)
    negation = "^" if part.startswith("[^") else ""
    inside = part[1 + len(negation) : -1].replace("\\", "\\\\").replace("[", "\\[")
    return f"[{negation}{inside}]" if inside else re.escape(part)


type Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A function with the numbers of arguments it takes, and what each must be.

    `types` None takes values of any type, even undefined. Arguments beyond `types` are optional
    booleans.
    """

    implementation: Implementation
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


def starts_with(text: str, prefix: str, ignores_case: bool = False) -> bool:
    """Whether a text begins with another."""
    return folded(text, ignores_case).startswith(folded(prefix, ignores_case))


def ends_with(text: str, suffix: str, ignores_case: bool = False) -> bool:
    """Whether a text ends with another."""
    return folded(text, ignores_case).endswith(folded(suffix, ignores_case))


def contains(text: str, part: str, ignores_case: bool = False) -> bool:
    """Whether a text holds another."""
    return folded(part, ignores_case) in folded(text, ignores_case)


def string_equals(text: str, other: str, ignores_case: bool = False) -> bool:
    """Whether two texts are the same."""
    return folded(text, ignores_case) == folded(other, ignores_case)


def folded(text: str, ignores_case: bool) -> str:
    """A text as it is compared."""
    return text.lower() if ignores_case else text


def substring(text: str, start: float, length: float) -> str:
    """A part of a text by its zero-based start and its length."""
    begin = max(0, int(start))
    return text[begin : begin + max(0, int(length))]


def left(text: str, length: float) -> str:
    """The first characters of a text."""
    return text[: max(0, int(length))]


def right(text: str, length: float) -> str:
    """The last characters of a text."""
    return text[len(text) - min(len(text), max(0, int(length))) :]


def array_contains(elements: list[Any], wanted: Any, is_partial: Any = False) -> Any:
    """Whether an element is the wanted value or, if partial, an object that has its members."""
    if wanted is UNDEFINED or not isinstance(elements, list) or not isinstance(is_partial, bool):
        return UNDEFINED
    return any(holds(one, wanted) if is_partial else is_same(one, wanted) for one in elements)


def holds(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, or an object with at least its members."""
    if not (isinstance(value, dict) and isinstance(wanted, dict)):
        return is_same(value, wanted)
    return all(name in value and is_same(value[name], wanted[name]) for name in wanted)


def rounded(number: float) -> Any:
    """The nearest whole number, halves away from zero."""
    return number_of(math.copysign(math.floor(abs(number) + 0.5), number))


TEXT, TEXTS = (str,), (str, str)
ANY_SCALAR = (str, int, float, bool, type(None))

FUNCTIONS: dict[str, Function] = {
    "IS_DEFINED": Function(lambda value: value is not UNDEFINED, (1,), None, is_served=True),
    "IS_NULL": Function(lambda value: value is None, (1,), None, is_served=True),
    "IS_BOOL": Function(lambda value: isinstance(value, bool), (1,), None, is_served=True),
    "IS_NUMBER": Function(is_number, (1,), None, is_served=True),
    "IS_STRING": Function(lambda value: isinstance(value, str), (1,), None, is_served=True),
    "IS_ARRAY": Function(lambda value: isinstance(value, list), (1,), None, is_served=True),
    "IS_OBJECT": Function(lambda value: isinstance(value, dict), (1,), None, is_served=True),
    "IS_PRIMITIVE": Function(
        lambda value: isinstance(value, ANY_SCALAR), (1,), None, is_served=True
    ),
    "STARTSWITH": Function(starts_with, (2, 3), TEXTS, is_served=True),
    "ENDSWITH": Function(ends_with, (2, 3), TEXTS, is_served=True),
    "CONTAINS": Function(contains, (2, 3), TEXTS, is_served=True),
    "STRINGEQUALS": Function(string_equals, (2, 3), TEXTS, is_served=True),
    "LOWER": Function(str.lower, (1,), TEXT),
    "UPPER": Function(str.upper, (1,), TEXT),
    "TRIM": Function(str.strip, (1,), TEXT),
    "LENGTH": Function(len, (1,), TEXT),
    "CONCAT": Function(lambda *texts: "".join(texts), tuple(range(2, 65)), (str,) * 64),
    "REPLACE": Function(str.replace, (3,), (str, str, str)),
    "SUBSTRING": Function(substring, (3,), (str, float, float)),
    "LEFT": Function(left, (2,), (str, float)),
    "RIGHT": Function(right, (2,), (str, float)),
    "INDEX_OF": Function(str.find, (2,), TEXTS),
    "ARRAY_CONTAINS": Function(array_contains, (2, 3), None, is_served=True),
    "ARRAY_LENGTH": Function(len, (1,), (list,)),
    "ABS": Function(abs, (1,), (float,)),
    "CEILING": Function(lambda number: number_of(math.ceil(number)), (1,), (float,)),
    "FLOOR": Function(lambda number: number_of(math.floor(number)), (1,), (float,)),
    "ROUND": Function(rounded, (1,), (float,)),
    "IIF": Function(lambda test, chosen, other: chosen if test is True else other, (3,), None),
}

OPERATORS = {"LIKE": Function(like, (2, 3), (str, str, str), is_served=True)}
BUILT_IN = FUNCTIONS | OPERATORS
