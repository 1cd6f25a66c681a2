"""Cosmos SQL text as tokens."""

import json
import re
from dataclasses import dataclass
from enum import Enum

from local.cosmos.answers import Refusal

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


def tokenize(query: str) -> list[Token]:
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
    return tokens


def string_value(text: str) -> str:
    """The value of a string token; escapes are those of JSON, and the quote may be single."""
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        value: str = json.loads(text, strict=False)
    except ValueError as error:
        raise Refusal(400, f"the string literal {text} has an unknown escape") from error
    return value
