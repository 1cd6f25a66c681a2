"""Cosmos SQL text as tokens."""

import json
import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from math import isfinite

from local.cosmos.answers import Refusal

TOKENIZED_MAX = 256
EXACT_MAX = 2**53  # whole numbers beyond are not exact in a double
TOKEN = re.compile(
    r"""
      (?P<blank>\s+)
    | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
    | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<parameter>@[A-Za-z_]\w*)
    | (?P<word>[A-Za-z_]\w*)
    | (?P<mark><>|<=|>=|!=|\|\||\?\?|[-=<>(),.*\[\]+/%?:{}|&^~])
    """,
    re.VERBOSE,
)


class Kind(Enum):
    """What a token is."""

    NUMBER = "number"
    STRING = "string"
    PARAMETER = "parameter"
    WORD = "word"
    MARK = "mark"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `position` counts characters from the start of the query."""

    kind: Kind
    text: str
    position: int

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, in any case."""
        return self.kind is Kind.WORD and self.text.upper() in words

    def is_mark(self, *marks: str) -> bool:
        """Whether it is one of these punctuation marks."""
        return self.kind is Kind.MARK and self.text in marks


@lru_cache(maxsize=TOKENIZED_MAX)
def tokenize(query: str) -> tuple[Token, ...]:
    """All tokens, an END last; a 400 Refusal for a character that starts none."""
    tokens = []
    position = 0
    while position < len(query):
        match = TOKEN.match(query, position)
        if match is None:
            raise Refusal(400, f"syntax error at {position}: {query[position]!r}")
        if match.lastgroup != "blank":
            tokens.append(Token(Kind(match.lastgroup), match.group(), position))
        position = match.end()
    tokens.append(Token(Kind.END, "", position))
    return tuple(tokens)


def number_value(text: str) -> int | float:
    """The value of a number token, which a double must be able to hold."""
    value = float(text)
    if not isfinite(value):
        raise Refusal(400, f"the number {text[:40]} is too large")
    return int(text) if text.isdigit() and value < EXACT_MAX else value


def string_value(text: str) -> str:
    """The value of a string token; escapes are those of JSON, and the quote may be single."""
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        value: str = json.loads(text, strict=False)
    except ValueError as error:
        raise Refusal(400, f"the string literal {text} has an unknown escape") from error
    return value
