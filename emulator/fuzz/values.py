"""Values with one place changed, at the edges of what a field can hold."""

from collections.abc import Sequence
from random import Random
from typing import Any

from proton import Described

DAMAGE = (0, 1, 0x40, 0x43, 0x45, 0x70, 0x7F, 0x80, 0xA1, 0xC0, 0xD0, 0xE0, 0xF0, 0xFF)


def mutate(rng: Random, value: Any, edges: Sequence[Any]) -> Any:
    """The same value with one place, somewhere in it, changed, left out or repeated."""
    if isinstance(value, Described):
        return Described(value.descriptor, mutate(rng, value.value, edges))
    if not isinstance(value, list | dict) or not value or rng.random() < 0.1:
        return rng.choice(edges)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {one: value[one] for one in value if one != key}
        return value | {key: mutate(rng, value[key], edges)}
    at = rng.randrange(len(value))
    changed = [mutate(rng, value[at], edges)]
    instead = rng.choices((changed, [], [value[at]] * 2), (8, 1, 1))[0]
    return [*value[:at], *instead, *value[at + 1 :]]


def damage(rng: Random, data: bytes) -> bytes:
    """The same bytes with one changed, or all from a place on left out, or a stretch repeated."""
    if not data:
        return data
    at = rng.randrange(len(data))
    end = rng.randint(at, min(len(data), at + 20))
    changed = bytes((rng.choice(DAMAGE),))
    return rng.choice(
        (data[:at] + changed + data[at + 1 :], data[:at], data[:end] + data[at:], data + changed)
    )
