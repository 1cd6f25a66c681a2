"""A declared mapping: which columns of a source are session, key, order, type and body."""

import json
import re
from collections.abc import Mapping as Table
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from spark.schemas import BROKEN_LINE

TYPE = re.compile(
    r"string|boolean|tinyint|smallint|int|bigint|float|double|date|timestamp|timestamp_ntz"
    r"|decimal\(\d+,\d+\)"
)
WHOLE = ("tinyint", "smallint", "int", "bigint")
# Options of Spark's readers by which rows would be lost or misread, in lower case.
FIXED_OPTIONS = {
    "columnnameofcorruptrecord",
    "columnpruning",
    "enforceschema",
    "header",
    "inferschema",
    "mode",
}
# How late a row may come, as Spark writes intervals; a date knows days only.
LATENESS = {
    **dict.fromkeys(("timestamp", "timestamp_ntz"), re.compile(r"\d+ (second|minute|hour|day)s?")),
    "date": re.compile(r"\d+ days?"),
    **dict.fromkeys(WHOLE, re.compile(r"\d+")),
}
# What has one order everywhere and a text that says all of it.
ORDERED = (*WHOLE, "string", "date", "timestamp", "timestamp_ntz")


class Format(StrEnum):
    """The formats a mapping can be declared for."""

    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


class MappingRefused(Exception):
    """A mapping that cannot be used; the text names what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Mapping:
    """How rows become facts. `columns` gives every column that is used its Spark type.

    `key` tells the facts of a session apart for good; `order` is where they belong in it. `type` is
    the message type of all rows, or `type_column` holds it. `body` are the columns a message says,
    as one JSON object. `time` and `watermark` are optional columns; rows are read that are up to
    `lateness` behind the highest watermark; `options` go to Spark's reader.
    """

    format: Format
    columns: Table[str, str]
    session: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    body: tuple[str, ...]
    type: str | None = None
    type_column: str | None = None
    time: str | None = None
    watermark: str | None = None
    lateness: str | None = None
    options: Table[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_texts(self)
        require_types(self.columns)
        require_options(self.options)
        if (self.type is None) == (self.type_column is None):
            raise MappingRefused("a mapping needs either type or type_column")
        if unknown := [name for name in self.used if name not in self.columns]:
            raise MappingRefused(f"no type is declared for the columns {', '.join(unknown)}")
        for name in (*self.order, *filter(None, (self.watermark,))):
            if self.columns[name] not in ORDERED:
                raise MappingRefused(f"{name} is {self.columns[name]}: that cannot be an order")
        if self.lateness is not None:
            require_lateness(self.lateness, self.columns.get(self.watermark or ""))

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns in which a row must say something."""
        optional = filter(None, (self.type_column, self.watermark))
        return tuple(dict.fromkeys((self.session, *self.key, *self.order, *optional)))

    @property
    def used(self) -> tuple[str, ...]:
        """Every column the mapping speaks of."""
        return tuple(dict.fromkeys((*self.needed, *self.body, *filter(None, (self.time,)))))

    @classmethod
    def read(cls, file: Path) -> "Mapping":
        """Read a mapping from a JSON file; raises MappingRefused."""
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise MappingRefused(f"cannot read {file}: {error}") from None
        if not isinstance(document, dict):
            raise MappingRefused(f"{file} holds no JSON object")
        return cls.of(document)

    @classmethod
    def of(cls, document: Table[str, Any]) -> "Mapping":
        """A mapping from its JSON object; raises MappingRefused."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(document.keys() - known):
            raise MappingRefused(f"a mapping has no {', '.join(unknown)}")
        required = ("format", "columns", "session", "key", "order", "body")
        if missing := [name for name in required if not document.get(name)]:
            raise MappingRefused(f"the mapping lacks {', '.join(missing)}")
        if document["format"] not in set(Format):
            raise MappingRefused(f"format {document['format']!r} is none of {', '.join(Format)}")
        lists = {name: names(name, document[name]) for name in ("key", "order", "body")}
        return cls(**{**document, **lists, "format": Format(document["format"])})


def names(what: str, value: object) -> tuple[str, ...]:
    """Column names from a JSON list."""
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise MappingRefused(f"{what} must be a list of columns, not {value!r}")
    if repeated := sorted({name for name in value if value.count(name) > 1}):
        raise MappingRefused(f"{what} names {', '.join(repeated)} more than once")
    return tuple(value)


def require_texts(mapping: Mapping) -> None:
    """Raise MappingRefused for a field that is to be one text and is not."""
    for name in ("session", "type", "type_column", "time", "watermark", "lateness"):
        value = getattr(mapping, name)
        if value is not None and not isinstance(value, str):
            raise MappingRefused(f"{name} must be text, not {value!r}")


def require_options(options: object) -> None:
    """Raise MappingRefused for options that no reader takes, and for those that are not to choose.

    With another mode Spark would drop rows, and nobody would count them.
    """
    if not isinstance(options, dict):
        raise MappingRefused(f"options must be an object, not {options!r}")
    if fixed := [name for name in options if name.lower() in FIXED_OPTIONS]:
        raise MappingRefused(f"the options {', '.join(fixed)} are the feed's own")


def require_types(columns: object) -> None:
    """Raise MappingRefused for a type that no column of a mapping can have."""
    if not isinstance(columns, dict):
        raise MappingRefused(f"columns must give each column its type, not {columns!r}")
    for name, kind in columns.items():
        if name == BROKEN_LINE or "." in name or "`" in name:
            raise MappingRefused(f"a column cannot be mapped under the name {name!r}: rename it")
        if not isinstance(kind, str) or not TYPE.fullmatch(kind):
            raise MappingRefused(f"column {name!r} cannot have the type {kind!r}")


def require_lateness(lateness: object, kind: str | None) -> None:
    """Raise MappingRefused unless a watermark of a type can be so much behind."""
    if kind is None:
        raise MappingRefused("lateness needs a watermark")
    form = LATENESS.get(kind)
    if form is None or not isinstance(lateness, str) or not form.fullmatch(lateness):
        raise MappingRefused(f"a watermark that is {kind} cannot be {lateness!r} late")
