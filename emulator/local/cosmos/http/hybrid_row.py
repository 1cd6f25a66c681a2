"""HybridRow, as the .NET clients write batches: rows of fields, one after the other in a stream.

A row is a version, the number of its schema, a bit for each field that may be missing, the fields
of fixed size, those of variable size with their length before them, and then sparse fields, each
with its type and name. A stream of RecordIO is a segment and then, for each row, a record with the
row's length and CRC-32. All numbers are little endian.

Described by Microsoft: Grammar.md and RecordIO.md in https://github.com/microsoft/HybridRow.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from local.cosmos.responses import BadRequest, NotOffered

VERSION = b"\x81"
HEADER = struct.Struct("<Bi")
SEGMENT_ID, RECORD_ID = 2147473648, 2147473649
# A segment's one bit says that its own length follows; a record's fields are never missing.
SEGMENT = struct.Struct("<BiBi")
RECORD = struct.Struct("<BiiI")
FALSE, TRUE, INT32, UINT32, FLOAT64, UTF8, BINARY = 2, 3, 7, 11, 16, 20, 21
NUMBERS = {INT32: struct.Struct("<i"), UINT32: struct.Struct("<I"), FLOAT64: struct.Struct("<d")}


@dataclass(frozen=True, slots=True)
class Schema:
    """The fields of a row in their order, with their types; any field may be missing."""

    number: int
    fixed: Mapping[str, int]
    variable: Mapping[str, int]
    sparse: Mapping[str, int]

    @property
    def paths(self) -> tuple[str, ...]:
        """The names by the number that stands for each; 0 stands for none."""
        return ("", *self.fixed, *self.variable, *self.sparse)


class RowReader:
    """Bytes, taken from the front; taking more than there is raises BadRequest."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise BadRequest("a HybridRow ends too early")
        taken, self._at = self._data[self._at : end], end
        return taken

    def take_length(self) -> int:
        """Take a length: seven bits a byte, the lowest first; the eighth says if there are more."""
        length, shift = 0, 0
        while True:
            (byte,) = self.take(1)
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return length
            shift += 7
            if shift > 28:
                raise BadRequest("a length in a HybridRow has more than five bytes")

    def take_value(self, kind: int) -> Any:
        if kind in (FALSE, TRUE):
            return kind == TRUE
        if kind in NUMBERS:
            return NUMBERS[kind].unpack(self.take(NUMBERS[kind].size))[0]
        if kind not in (UTF8, BINARY):
            raise NotOffered(f"the type {kind} in a HybridRow")
        taken = self.take(self.take_length())
        try:
            return taken.decode() if kind == UTF8 else taken
        except UnicodeDecodeError as error:
            raise BadRequest(f"a text in a HybridRow is not UTF-8: {error}") from error


def read_records(data: bytes) -> list[bytes]:
    """The rows of a stream of RecordIO of one segment; raises BadRequest if it is damaged."""
    reader = RowReader(data)
    version, schema, has_length, length = SEGMENT.unpack(reader.take(SEGMENT.size))
    if (version, schema, has_length) != (VERSION[0], SEGMENT_ID, 1):
        raise BadRequest("a batch in HybridRow begins with a segment of RecordIO")
    reader.take(length - SEGMENT.size)  # a comment, and schemas, which are known here
    rows = []
    while reader:
        version, schema, length, checksum = RECORD.unpack(reader.take(RECORD.size))
        if (version, schema) != (VERSION[0], RECORD_ID):
            raise BadRequest("after a segment of RecordIO come records only")
        rows.append(reader.take(length))
        if crc32(rows[-1]) != checksum:
            raise BadRequest(f"the record {len(rows) - 1} has another CRC-32 than it says")
    return rows


def write_records(rows: Iterable[bytes]) -> bytes:
    """A stream of RecordIO of one segment."""
    parts = [SEGMENT.pack(VERSION[0], SEGMENT_ID, 1, SEGMENT.size)]
    for row in rows:
        parts += [RECORD.pack(VERSION[0], RECORD_ID, len(row), crc32(row)), row]
    return b"".join(parts)


def decode_row(schema: Schema, row: bytes) -> dict[str, Any]:
    """The fields of a row that are not missing; raises BadRequest, or NotOffered for others."""
    reader = RowReader(row)
    if HEADER.unpack(reader.take(HEADER.size)) != (VERSION[0], schema.number):
        raise BadRequest(f"a HybridRow is not of schema {schema.number}")
    placed = {**schema.fixed, **schema.variable}
    bits = int.from_bytes(reader.take((len(placed) + 7) // 8), "little")
    fields: dict[str, Any] = {}
    for at, (path, kind) in enumerate(placed.items()):
        # What is fixed has its place even where it is missing.
        if path in schema.fixed or bits >> at & 1:
            value = reader.take_value(kind)
            if bits >> at & 1:
                fields[path] = value
    paths = schema.paths
    while reader:
        (kind,) = reader.take(1)
        token = reader.take_length()
        if token < len(paths):
            path = paths[token]
        else:  # a name that the schema lacks stands here itself
            path = reader.take(token - len(paths)).decode(errors="replace")
        if path not in schema.sparse:
            raise NotOffered(f"{path!r} in a HybridRow")
        if kind != schema.sparse[path] and (kind, schema.sparse[path]) != (FALSE, TRUE):
            raise BadRequest(f"{path!r} in a HybridRow has the type {kind}")
        fields[path] = reader.take_value(kind)
    return fields


def encode_row(schema: Schema, fields: Mapping[str, Any]) -> bytes:
    """A row of these fields, those that are None left out."""
    given = {path: value for path, value in fields.items() if value is not None}
    placed = {**schema.fixed, **schema.variable}
    bits = sum(1 << at for at, path in enumerate(placed) if path in given)
    parts = [HEADER.pack(VERSION[0], schema.number)]
    parts.append(bits.to_bytes((len(placed) + 7) // 8, "little"))
    parts += [write_value(kind, given.get(path, 0)) for path, kind in schema.fixed.items()]
    for path, kind in schema.variable.items():
        if path in given:
            parts.append(write_value(kind, given[path]))
    for path, kind in schema.sparse.items():
        if path in given:
            token = write_length(schema.paths.index(path))
            parts.append(bytes([kind]) + token + write_value(kind, given[path]))
    return b"".join(parts)


def write_value(kind: int, value: Any) -> bytes:
    if kind in NUMBERS:
        return NUMBERS[kind].pack(value)
    data: bytes = value.encode() if kind == UTF8 else value
    return write_length(len(data)) + data


def write_length(length: int) -> bytes:
    written = bytearray()
    while length >= 0x80:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*written, length])
