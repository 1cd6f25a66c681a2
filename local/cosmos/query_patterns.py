"""Patterns of LIKE: % for any text, _ for one character, [a-z] and [^a-z] for one of a set."""

import re
from functools import lru_cache

from local.cosmos.answers import Refusal

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
