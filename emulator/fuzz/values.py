"""Values as they may be: with one of several choices, or one place changed."""

import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from proton import Described

DAMAGE = (0, 1, 0x40, 0x43, 0x45, 0x70, 0x7F, 0x80, 0xA1, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF)
NO_TEXTS: Mapping[str, Sequence[str]] = {}


def fill(rng: Random, value: Any, grammar: Mapping[str, Sequence[str]] = NO_TEXTS) -> Any:
    """The same value with a choice for each tuple in it, and for each <name> in a text."""
    match value:
        case tuple():
            return fill(rng, rng.choice(value), grammar)
        case str() if grammar:
            return re.sub(r"<(\w+)>", lambda one: fill(rng, tuple(grammar[one[1]]), grammar), value)
        case Described():
            return Described(value.descriptor, fill(rng, value.value, grammar))
        case list():
            return [fill(rng, one, grammar) for one in value]
        case dict():
            return {fill(rng, key, grammar): fill(rng, one, grammar) for key, one in value.items()}
    return value


def mutate(rng: Random, value: Any, edges: Sequence[Any]) -> Any:
    """The same value with one place, somewhere in it, changed, left out or repeated."""
    if isinstance(value, Described):
        return Described(value.descriptor, mutate(rng, value.value, edges))
    if not isinstance(value, list | dict) or not value or rng.random() < 0.2:
        return rng.choice(edges)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        rest = {one: value[one] for one in value if one != key}
        return rest if rng.random() < 0.15 else rest | {key: mutate(rng, value[key], edges)}
    at = rng.randrange(len(value))
    changed = [mutate(rng, value[at], edges)]
    instead = rng.choices((changed, [], [value[at]] * 2), (8, 1, 1))[0]
    return [*value[:at], *instead, *value[at + 1 :]]


def damage(rng: Random, data: bytes) -> bytes:
    """The same bytes with one changed, or all from a place on left out, or a stretch repeated."""
    at = rng.randrange(len(data) + 1)
    one, rest = bytes((rng.choice(DAMAGE),)), data[at:]
    return data[:at] + rng.choice((one + rest[1:], b"", rest[:20] + rest, rest + one))
