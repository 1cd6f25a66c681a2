"""Partition keys: reading them from documents and headers, and the partitions they hash to.

Only single-path keys of version 2 are offered. The effective partition key is MurmurHash3 (x64, 128
bits, seed 0) of the encoded value, as all clients compute it. The ring of effective keys is cut
into the physical partitions of a container: a client learns the cut from `pkranges` and names one
partition by its number. Nothing is ever split or merged.
"""

import json
import re
import struct
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import Any

import mmh3

from local.cosmos.exact_json import read_json
from local.cosmos.responses import BadRequest, NotOffered, write_json

KEY_BYTES_MAX = 2048
UNDEFINED = "{}"  # how the wire writes the key of an item that lacks the path
MAX_RANGE = "FF"
PARTITIONS_MAX = 64
ONE_PARTITION_MAX = 10_000  # request units a second that one physical partition serves
PARTITION_THROUGHPUT = 6_000  # what each one gets of more than that when a container is created
# A step of a path may stand in quotes of either kind, and then hold a slash.
STEP = re.compile(r"""/(?:"([^"]+)"|'([^']+)'|([^/"']+))""")
PATH = re.compile(rf"/|(?:{STEP.pattern})+")
KEYS = 1 << 126  # effective keys have 128 bits, and the highest two are zero


@dataclass(frozen=True, slots=True)
class KeyPath:
    """The property path of a container's partition key, `/a/"b/c"` as ("a", "b/c")."""

    names: tuple[str, ...]

    def read(self, document: dict[str, Any]) -> str:
        """The canonical key of a document; UNDEFINED when the path leads to nothing, or an object.

        The path `/` has no names, so all items have the same key.
        """
        value: Any = document
        for name in self.names:
            if not isinstance(value, dict) or name not in value:
                return UNDEFINED
            value = value[name]
        return UNDEFINED if isinstance(value, dict) else canonicalize(value)


def parse_key_path(definition: Any) -> KeyPath:
    """Read a `partitionKey` definition; a refusal names what is not offered."""
    paths = definition.get("paths") if isinstance(definition, dict) else None
    if not isinstance(paths, list) or not paths or not all(isinstance(p, str) for p in paths):
        raise BadRequest("partitionKey with one path is required")
    if definition.get("kind", "Hash") != "Hash" or len(paths) != 1:
        raise NotOffered("hierarchical partition keys")
    if definition.get("version", 2) != 2:
        raise NotOffered("partition keys of version 1")
    return parse_quoted_path(paths[0])


def parse_quoted_path(text: Any) -> KeyPath:
    """Read `/a/"b/c"`; a 400 when it is no path."""
    if not isinstance(text, str) or PATH.fullmatch(text) is None:
        raise BadRequest(f'the path of a key must look like /a/b or /"a b", not {text!r}')
    steps = STEP.findall(text)
    return KeyPath(tuple(double or single or plain for double, single, plain in steps))


@lru_cache(maxsize=4096)
def parse_key_header(header: str) -> str:
    """The canonical key of an x-ms-documentdb-partitionkey header such as `["DL1742"]`."""
    try:
        values = read_json(header)
    except ValueError as error:
        raise BadRequest(f"partition key {header!r} is not JSON") from error
    if isinstance(values, list) and len(values) > 1:
        raise NotOffered("hierarchical partition keys")
    if not isinstance(values, list) or not values:
        raise BadRequest(f"partition key {header!r} must hold one value")
    return UNDEFINED if values[0] == {} else canonicalize(values[0])


def canonicalize(value: Any) -> str:
    """One text per key value, so that 1 and 1.0 are the same partition."""
    if isinstance(value, dict | list):
        raise BadRequest("a partition key value must be a string, number, boolean or null")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = write_json(value)
    if len(text.encode()) > KEY_BYTES_MAX:
        raise BadRequest(f"a partition key value may have {KEY_BYTES_MAX} bytes at most")
    return text


@lru_cache(maxsize=65536)
def hash_key(key: str) -> str:
    """The effective key of a canonical key, as 32 upper-case hexadecimal digits."""
    match json.loads(key):  # what is hashed is a type marker, then the value
        case None | {}:
            encoded = b"\x01"
        case bool(flag):
            encoded = b"\x03" if flag else b"\x02"
        case str(text):
            encoded = b"\x08" + text.encode() + b"\xff"
        case number:
            encoded = b"\x05" + struct.pack("<d", number)
    low, high = mmh3.hash64(encoded, signed=False)
    return f"{(high << 64 | low) % KEYS:032X}"


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A half-open interval of effective keys; clients compare it as text."""

    start: str = ""
    end: str = MAX_RANGE

    def covers(self, key: str) -> bool:
        return self.is_everything or self.start <= hash_key(key) < self.end

    @property
    def is_everything(self) -> bool:
        return self.start == "" and self.end == MAX_RANGE


WHOLE_RING = KeyRange()


@dataclass(frozen=True, slots=True)
class HashRing:
    """Physical partitions, numbered along the ring; each begins where the one before it ends."""

    ranges: tuple[KeyRange, ...]
    starts: tuple[str, ...]
    numbers: tuple[int, ...]

    def find_partition(self, key: str) -> int:
        """The number of the partition a canonical key is in; a ring of one needs no hash."""
        return bisect_right(self.starts, hash_key(key)) - 1 if len(self.starts) > 1 else 0

    def find_partition_around(self, key_range: KeyRange) -> int | None:
        """The number of the one partition all of an interval is in; None if there is none."""
        number = bisect_right(self.starts, key_range.start) - 1
        return number if key_range.end <= self.ranges[number].end else None


def count_partitions(throughput: int) -> int:
    """Return how many physical partitions a container has at first, by its request units a second.

    Specification: "Best practices for scaling provisioned throughput" of Azure Cosmos DB.
    """
    if throughput <= ONE_PARTITION_MAX:
        return 1
    return min(PARTITIONS_MAX, ceil(throughput / PARTITION_THROUGHPUT))


@lru_cache
def cut_ring(count: int) -> HashRing:
    width = (KEYS - 1) // count  # the last one takes what is left over
    inner = [f"{width * number:032X}" for number in range(1, count)]
    starts = ("", *inner)
    ranges = tuple(KeyRange(*bounds) for bounds in zip(starts, (*inner, MAX_RANGE), strict=True))
    return HashRing(ranges, starts, tuple(range(count)))
