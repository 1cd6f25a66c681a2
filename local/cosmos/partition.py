"""Partition keys: reading them from documents and headers, and where they hash to.

Only single-path keys of version 2 are offered. The effective partition key is MurmurHash3 (x64, 128
bits) of the encoded value, as all clients compute it; it decides which items a feed range covers.
"""

import json
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from local.cosmos.answers import Refusal, compact, unsupported
from local.cosmos.murmur import murmur3_128

KEY_BYTES_MAX = 2048
UNDEFINED = "{}"  # how the wire writes the key of an item that lacks the path
MAX_RANGE = "FF"


@dataclass(frozen=True, slots=True)
class KeyPath:
    """The property path of a container's partition key, `/a/b` as ("a", "b")."""

    names: tuple[str, ...]

    def of(self, document: dict[str, Any]) -> str:
        """The canonical key of a document; UNDEFINED when the path is absent."""
        value: Any = document
        for name in self.names:
            if not isinstance(value, dict) or name not in value:
                return UNDEFINED
            value = value[name]
        return canonical(value)


def parse_key_path(definition: Any) -> KeyPath:
    """Read a `partitionKey` definition; a Refusal names what is not offered."""
    paths = definition.get("paths") if isinstance(definition, dict) else None
    if not isinstance(paths, list) or not paths or not all(isinstance(p, str) for p in paths):
        raise Refusal(400, "partitionKey with one path is required")
    if definition.get("kind", "Hash") != "Hash" or len(paths) != 1:
        raise unsupported("hierarchical partition keys")
    if definition.get("version", 2) != 2:
        raise unsupported("partition keys of version 1")
    return KeyPath(tuple(paths[0].strip("/").split("/")))


@lru_cache(maxsize=4096)
def parse_key_header(header: str) -> str:
    """The canonical key of an x-ms-documentdb-partitionkey header such as `["DL1742"]`."""
    try:
        values = json.loads(header)
    except json.JSONDecodeError as error:
        raise Refusal(400, f"partition key {header!r} is not JSON") from error
    if not isinstance(values, list) or len(values) != 1:
        raise Refusal(400, f"partition key {header!r} must hold one value")
    return UNDEFINED if values[0] == {} else canonical(values[0])


def canonical(value: Any) -> str:
    """One text per key value, so that 1 and 1.0 are the same partition."""
    if isinstance(value, dict | list):
        raise Refusal(400, "a partition key value must be a string, number, boolean or null")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = compact(value)
    if len(text.encode()) > KEY_BYTES_MAX:
        raise Refusal(400, f"a partition key value may have {KEY_BYTES_MAX} bytes at most")
    return text


@lru_cache(maxsize=65536)
def effective_key(key: str) -> str:
    """The place of a canonical key on the ring, as 32 upper-case hexadecimal digits."""
    low, high = murmur3_128(encoded(json.loads(key)))
    digest = bytearray(high.to_bytes(8, "big") + low.to_bytes(8, "big"))
    digest[0] &= 0x3F
    return digest.hex().upper()


def encoded(value: Any) -> bytes:
    """A key value as the bytes that are hashed: a type marker, then the value."""
    match value:
        case None | {}:
            return b"\x01"
        case bool():
            return b"\x03" if value else b"\x02"
        case str():
            return b"\x08" + value.encode() + b"\xff"
        case _:
            return b"\x05" + struct.pack("<d", value)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A half-open interval of effective keys; clients compare it as text."""

    start: str = ""
    end: str = MAX_RANGE

    def covers(self, key: str) -> bool:
        """Whether a canonical key hashes into the interval."""
        return self.is_everything or self.start <= effective_key(key) < self.end

    @property
    def is_everything(self) -> bool:
        """Whether no key can fall outside."""
        return self.start == "" and self.end == MAX_RANGE


WHOLE_RING = KeyRange()
