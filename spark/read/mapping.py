"""A declared mapping: which columns of a source are session, key, order, type and body."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from shared.domain.errors import InvalidMessage
from shared.domain.message import TYPE_CHARACTERS_MAX, refuse_reserved, require_text
from spark.job.failures import JobRefused
from spark.schemas import BROKEN_LINE

COLUMN_TYPE = re.compile(
    r"string|boolean|tinyint|smallint|int|bigint|float|double|date|timestamp|timestamp_ntz"
    r"|decimal\(\d+,\d+\)|binary|(struct|array|map)<.+>"
)
DECIMAL = re.compile(r"decimal\(\d+,\d+\)")
# What only a body can hold, and what of it Spark's reader of JSON would cut or round.
BODY_ONLY = re.compile(r"binary|(struct|array|map)<.+>")
CUT_WITHIN = re.compile(r"[:<,] *(timestamp\w*|date|decimal\(\d+,\d+\)) *[,>]")
WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
# Options of Spark's readers, in lower case, that would lose rows or read them wrongly.
FIXED_OPTIONS = {
    "columnnameofcorruptrecord",
    "columnpruning",
    "enforceschema",
    "header",
    "inferschema",
    "mode",
}
# The options of Spark's readers of text that have an effect, in lower case. All cells are read as
# text, so those that tell Spark how a type is written have none.
FILES_OPTIONS = {
    *("pathglobfilter", "recursivefilelookup", "modifiedbefore", "modifiedafter", "compression"),
    *("maxfilespertrigger", "maxbytespertrigger", "latestfirst", "maxfileage", "cleansource"),
    "sourcearchivedir",
}
CELLS_OPTIONS = {
    "csv": {
        *(
            "sep",
            "delimiter",
            "quote",
            "escape",
            "chartoescapequoteescaping",
            "multiline",
            "linesep",
        ),
        *("encoding", "charset", "comment", "nullvalue", "emptyvalue", "unescapedquotehandling"),
        *("ignoreleadingwhitespace", "ignoretrailingwhitespace", "maxcolumns", "maxcharspercolumn"),
    },
    "json": {
        *("multiline", "linesep", "encoding", "charset", "allowcomments", "allowsinglequotes"),
        *("allowunquotedfieldnames", "allownumericleadingzeros", "allownonnumericnumbers"),
        *("allowbackslashescapinganycharacter", "allowunquotedcontrolchars"),
    },
}
# How the cells of a column may be written: a pattern of Spark's for times, a comma for numbers.
TIMES, ZONED_TIME = ("date", "timestamp", "timestamp_ntz"), "timestamp"
ZONE_LETTERS = frozenset("VzOXxZ")
PATTERN = re.compile(r"(?=.*[yu])([yuMLdDEaHhKkmsVzOXxZ]|(?<!S)S{1,6}(?!S)|[^A-Za-z{}#])+")
DECIMAL_COMMA = ","
# How lateness is written for each type of watermark, as Spark writes intervals.
LATENESS_FORMS = {
    **dict.fromkeys(("timestamp", "timestamp_ntz"), re.compile(r"\d+ (second|minute|hour|day)s?")),
    "date": re.compile(r"\d+ days?"),
    **dict.fromkeys(WHOLE_NUMBERS, re.compile(r"\d+")),
}
# How values write times (read/values.py). A manifest of before has no such number.
TIMES_FORMAT = "format 2, in UTC with all digits"
# The fields of a mapping that are one text.
TEXTS = (
    "session",
    "type",
    "type_column",
    "time",
    "watermark",
    "lateness",
    "version",
    "deleted_type",
)
# Types with the same order everywhere, and with a text that keeps the whole value.
TIME_TYPES = ("string", "date", "timestamp", "timestamp_ntz")
ORDERABLE_TYPES = (*WHOLE_NUMBERS, *TIME_TYPES)


class SourceFormat(StrEnum):
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ORC = "orc"
    AVRO = "avro"
    DELTA = "delta"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class SourceMapping:
    """The way from rows to facts. `columns` gives the Spark type of every column that is used.

    `key` identifies a row within its session for good, and `order` is its position there. `type` is
    the message type of all rows, or `type_column` holds it. `body` lists the columns of the
    message, which is one JSON object. `time`, `watermark` and `version` are optional columns. Rows
    are read that are up to `lateness` behind the highest watermark. Of the rows with one key that
    with the highest `version` counts, or with the highest watermark if there is no version.
    `options` go to Spark's reader. `formats` says how the texts of a column are written: a date or
    a time by a pattern of Spark's, a number by "," if it has a decimal comma. `deleted_type` is the
    type of the message that says of a key that its row is deleted.
    """

    format: SourceFormat
    columns: Mapping[str, str]
    session: str
    key: tuple[str, ...]
    order: tuple[str, ...]
    body: tuple[str, ...]
    type: str | None = None
    type_column: str | None = None
    time: str | None = None
    watermark: str | None = None
    lateness: str | None = None
    version: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)
    deleted_type: str | None = None

    def __post_init__(self) -> None:
        for name in TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                raise JobRefused(f"{name} must be text, not {value!r}")
        require_column_types(self.columns, self.format)
        require_reader_options(self.options, self.format)
        require_formats(self.formats, self.columns)
        if (self.type is None) == (self.type_column is None):
            raise JobRefused("a mapping needs either type or type_column")
        used = dict.fromkeys((*self.required_columns, *self.body, *filter(None, (self.time,))))
        if unknown := [name for name in used if name not in self.columns]:
            raise JobRefused(f"no type is declared for the columns {', '.join(unknown)}")
        for name in (*self.order, *filter(None, (self.watermark, self.version))):
            kind = self.columns[name]
            if kind not in ORDERABLE_TYPES and not DECIMAL.fullmatch(kind):
                raise JobRefused(f"{name} is {kind}: that cannot be an order")
        for name in filter(None, (self.session, *self.key, self.type_column)):
            if BODY_ONLY.fullmatch(self.columns[name]):
                raise JobRefused(f"{name} is {self.columns[name]}: only a body can hold that")
        require_sendable(self.type, self.time, self.columns)
        require_deleted_type(self.deleted_type, self.type)
        if self.lateness is not None:
            require_lateness(self.lateness, self.columns.get(self.watermark or ""))

    @property
    def required_columns(self) -> tuple[str, ...]:
        """The columns that must not be empty in any row."""
        optional = filter(None, (self.type_column, self.watermark, self.version))
        return tuple(dict.fromkeys((self.session, *self.key, *self.order, *optional)))

    def describe(self, zone: str) -> dict[str, str]:
        """Return what keys, places and contents depend on beside the rows, as texts to compare.

        The time zone is part of it if a column depends on it, and so is the format of times where
        an older release wrote them otherwise: without digits below a millisecond in bodies, and in
        the session's zone.
        """
        lists = {"key": self.key, "order": self.order, "body": sorted(self.body)}
        single = {"session": self.session, "type_column": self.type_column}
        single["version"] = self.version or self.watermark
        lists |= {name: (column,) for name, column in single.items() if column is not None}
        found = {
            name: ", ".join(self.describe_column(column) for column in columns)
            for name, columns in lists.items()
        }
        if self.type is not None:
            found["type"] = self.type
        if self.deleted_type is not None:
            found["deleted_type"] = self.deleted_type
        shaping = {n: o for n, o in self.options.items() if n.lower() not in FILES_OPTIONS}
        found["options"] = ", ".join(f"{n} {shaping[n]!r}" for n in sorted(shaping)) or "none"
        if any("timestamp" in text.replace("timestamp_ntz", "") for text in found.values()):
            found["time zone"] = zone
        times = {name for name, kind in self.columns.items() if kind.startswith("timestamp")}
        others = {self.session, *self.key, *self.order, self.version or self.watermark}
        if times & {*self.body} or (zone != "UTC" and times & others):
            found["times"] = TIMES_FORMAT
        return found

    def describe_column(self, name: str) -> str:
        form = self.formats.get(name)
        return f"{name} {self.columns[name]}" + (f" as {form}" if form else "")

    @classmethod
    def read(cls, file: Path) -> "SourceMapping":
        """Read a mapping from a JSON file; raises JobRefused."""
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise JobRefused(f"cannot read {file}: {error}") from None
        if not isinstance(document, dict):
            raise JobRefused(f"{file} holds no JSON object")
        return cls.parse(document)

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> "SourceMapping":
        known = {f.name for f in fields(cls)}
        if unknown := sorted(document.keys() - known):
            raise JobRefused(f"a mapping has no {', '.join(unknown)}")
        required = ("format", "columns", "session", "key", "order", "body")
        if missing := [name for name in required if not document.get(name)]:
            raise JobRefused(f"the mapping lacks {', '.join(missing)}")
        if document["format"] not in set(SourceFormat):
            known_formats = ", ".join(SourceFormat)
            raise JobRefused(f"format {document['format']!r} is none of {known_formats}")
        lists = {name: parse_columns(name, document[name]) for name in ("key", "order", "body")}
        return cls(**{**document, **lists, "format": SourceFormat(document["format"])})


def parse_columns(field_name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise JobRefused(f"{field_name} must be a list of columns, not {value!r}")
    if repeated := sorted({name for name in value if value.count(name) > 1}):
        raise JobRefused(f"{field_name} names {', '.join(repeated)} more than once")
    return tuple(value)


def require_reader_options(options: object, form: str) -> None:
    """Refuse the feed's own options, and those of readers of text that have no effect.

    With another mode, for one, Spark drops rows uncounted.
    """
    if not isinstance(options, dict):
        raise JobRefused(f"options must be an object, not {options!r}")
    if fixed := [name for name in options if name.lower() in FIXED_OPTIONS]:
        raise JobRefused(f"the options {', '.join(fixed)} are the feed's own")
    known = CELLS_OPTIONS.get(form)
    if known and (idle := [n for n in options if n.lower() not in known | FILES_OPTIONS]):
        raise JobRefused(
            f"the options {', '.join(idle)} would have no effect on {form}; how the cells of a "
            "column are written, stands in formats"
        )


def require_formats(formats: object, columns: Mapping[str, str]) -> None:
    if not isinstance(formats, dict):
        raise JobRefused(f"formats must give columns their format, not {formats!r}")
    for name, form in formats.items():
        kind = columns.get(name)
        if kind is None:
            raise JobRefused(f"no type is declared for the columns {name}")
        if kind.startswith(("decimal", "float", "double")):
            if form == DECIMAL_COMMA:
                continue
            raise JobRefused(f'a format of {name}, a {kind}, can only be ",": a decimal comma')
        if kind not in TIMES:
            raise JobRefused(f"{name} is {kind}, which has no format")
        letters = re.sub("'[^']*'", "", form) if isinstance(form, str) else ""
        if not PATTERN.fullmatch(letters) or "'" in letters:
            raise JobRefused(
                f"a format of {name} must be a date pattern of Spark's with a year, as "
                f"yyyy/MM/dd HH:mm:ss.SSSSSS, not {form!r}"
            )
        if kind != ZONED_TIME and ZONE_LETTERS & set(letters):
            raise JobRefused(f"{name} is {kind}: the zone that its format names would be dropped")


def require_column_types(columns: object, form: str) -> None:
    if not isinstance(columns, dict):
        raise JobRefused(f"columns must give each column its type, not {columns!r}")
    for name, kind in columns.items():
        if name == BROKEN_LINE or "." in name or "`" in name:
            raise JobRefused(f"a column cannot be mapped under the name {name!r}: rename it")
        if not isinstance(kind, str) or not COLUMN_TYPE.fullmatch(kind):
            raise JobRefused(f"column {name!r} cannot have the type {kind!r}")
        require_readable(name, kind, form)


def require_readable(name: str, kind: str, form: str) -> None:
    """Refuse a type that a reader of text cannot read, or of which it would lose a part."""
    if not BODY_ONLY.fullmatch(kind):
        return
    if form == SourceFormat.CSV:
        raise JobRefused(f"{name} is {kind}: no cell of csv can hold that")
    if form == SourceFormat.JSON and (found := CUT_WITHIN.search(kind)):
        raise JobRefused(
            f"{name} is {kind}: in json a {found[1]} within it would be cut; declare it as a string"
        )


def require_sendable(
    message_type: str | None, time: str | None, columns: Mapping[str, str]
) -> None:
    """Refuse a type, or a column for the time, for which every row would be refused."""
    if time is not None and columns[time] not in TIME_TYPES:
        raise JobRefused(f"{time} is {columns[time]}: a time is {', '.join(TIME_TYPES)}")
    try:
        if message_type is not None:
            require_text("type", message_type, TYPE_CHARACTERS_MAX)
            refuse_reserved("", message_type)
    except InvalidMessage as error:
        raise JobRefused(str(error)) from None


def require_deleted_type(deleted: str | None, message_type: str | None) -> None:
    """Refuse a type for what is deleted that cannot be sent, or that the rows have."""
    require_sendable(deleted, None, {})
    if deleted is not None and deleted == message_type:
        raise JobRefused("deleted_type is the type of the rows: say another, by which they differ")


def require_lateness(lateness: object, kind: str | None) -> None:
    if kind is None:
        raise JobRefused("lateness needs a watermark")
    form = re.compile(r"\d+(\.\d+)?") if DECIMAL.fullmatch(kind) else LATENESS_FORMS.get(kind)
    if form is None or not isinstance(lateness, str) or not form.fullmatch(lateness):
        raise JobRefused(f"a watermark that is {kind} cannot be {lateness!r} late")
