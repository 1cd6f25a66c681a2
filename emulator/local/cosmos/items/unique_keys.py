"""Unique keys of a container: paths whose values no two items of a logical partition share.

Specification: "Unique key constraints in Azure Cosmos DB". What is missing counts as null.
"""

from dataclasses import dataclass
from typing import Any

from local.cosmos.exact_json import read_json
from local.cosmos.items.partitions import KeyPath, parse_quoted_path
from local.cosmos.items.storage import Storage
from local.cosmos.responses import BadRequest, RequestRefused
from local.cosmos.sql.values import UNDEFINED, find_value, make_identity_key

KEYS_MAX = 10
PATHS_MAX = 16


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The paths of one key, of which the values count together."""

    paths: tuple[KeyPath, ...]

    def read(self, document: Any) -> tuple[Any, ...]:
        values = (find_value(document, path.names) for path in self.paths)
        return tuple(make_identity_key(None if one is UNDEFINED else one) for one in values)


def parse_unique_keys(policy: Any) -> tuple[UniqueKey, ...]:
    """Read a `uniqueKeyPolicy`; a 400 when it makes no sense."""
    match policy:
        case None:
            return ()
        case {"uniqueKeys": list(keys), **rest} if not rest and len(keys) <= KEYS_MAX:
            return tuple(map(parse_unique_key, keys))
        case _:
            raise BadRequest(f"a uniqueKeyPolicy has uniqueKeys, {KEYS_MAX} at most")


def parse_unique_key(key: Any) -> UniqueKey:
    match key:
        case {"paths": [_, *_] as paths, **rest} if not rest and len(paths) <= PATHS_MAX:
            return UniqueKey(tuple(map(parse_quoted_path, paths)))
        case _:
            raise BadRequest(f"a unique key has paths, from 1 to {PATHS_MAX}")


def check_unique(
    storage: Storage,
    keys: tuple[UniqueKey, ...],
    document: Any,
    *,
    place: tuple[int, str],
    number: int,
    now: int,
) -> None:
    """Raise a 409 when another item of a partition has the same values.

    `place` is the container's number and the key of the partition; `number` is the item's own.
    """
    if not keys:
        return
    wanted = [key.read(document) for key in keys]
    rows = storage.connection.execute(
        "SELECT body FROM items WHERE container = ? AND partition = ? AND birth != ?"
        " AND (expires IS NULL OR expires > ?)",
        (*place, number, now),
    )
    for (body,) in rows:
        other = read_json(body)
        if any(key.read(other) == values for key, values in zip(keys, wanted, strict=True)):
            raise RequestRefused(409, "another item of this partition has the same unique key")
