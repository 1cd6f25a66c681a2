"""The functions of dates, which are texts such as `2026-11-23T08:00:00.1234567Z`, in UTC.

A moment is kept as ticks of 100 ns since the year 1, as the service counts them: no type of Python
is as fine. What is no such text, or outside the years 1 to 9999, makes a function undefined.
"""

import re
from datetime import datetime, timedelta
from typing import Any

from local.cosmos.sql.values import UNDEFINED, normalize_number

SECOND = 10_000_000  # ticks
MILLISECOND = 10_000
EPOCH = 62_135_596_800 * SECOND  # 1970
FIRST = datetime(1, 1, 1)  # noqa: DTZ001 - all dates here are in UTC
MOMENT = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,7}))?Z")
# Each part by its names.
NAMES = {
    "year": ("year", "yyyy", "yy"),
    "month": ("month", "mm", "m"),
    "day": ("day", "dd", "d"),
    "hour": ("hour", "hh"),
    "minute": ("minute", "mi", "n"),
    "second": ("second", "ss", "s"),
    "millisecond": ("millisecond", "ms"),
    "microsecond": ("microsecond", "mcs"),
    "nanosecond": ("nanosecond", "ns"),
}
PARTS = {name: part for part, names in NAMES.items() for name in names}


def parse_moment(text: str) -> int | None:
    """The ticks of a text; None when it is no date."""
    found = MOMENT.fullmatch(text)
    try:
        moment = datetime.fromisoformat(found[1]) if found else None
    except ValueError:  # such as a 30th of February
        return None
    if found is None or moment is None:
        return None
    seconds = (moment - FIRST) // timedelta(seconds=1)
    return seconds * SECOND + int((found[2] or "").ljust(7, "0"))


def write_moment(ticks: int) -> Any:
    seconds, fraction = divmod(ticks, SECOND)
    try:
        moment = FIRST + timedelta(seconds=seconds)
    except OverflowError:
        return UNDEFINED
    return f"{moment.isoformat()}.{fraction:07}Z"


def read_date_part(name: str, text: str) -> Any:
    """DateTimePart: a part of a date as a number."""
    part, ticks = PARTS.get(name.lower()), parse_moment(text)
    if part is None or ticks is None:
        return UNDEFINED
    seconds, fraction = divmod(ticks, SECOND)
    match part:
        case "millisecond":
            return fraction // MILLISECOND
        case "microsecond":
            return fraction // 10
        case "nanosecond":
            return fraction * 100
        case _:
            return getattr(FIRST + timedelta(seconds=seconds), part)


def to_timestamp(text: str) -> Any:
    """DateTimeToTimestamp: whole milliseconds since 1970."""
    ticks = parse_moment(text)
    return UNDEFINED if ticks is None else (ticks - EPOCH) // MILLISECOND


def from_timestamp(milliseconds: float) -> Any:
    """TimestampToDateTime: a date from milliseconds since 1970."""
    return write_moment(EPOCH + int(milliseconds) * MILLISECOND)


def to_ticks(text: str) -> Any:
    """DateTimeToTicks: ticks since 1970, which a double may round."""
    ticks = parse_moment(text)
    return UNDEFINED if ticks is None else normalize_number(float(ticks - EPOCH))


def from_ticks(ticks: float) -> Any:
    """TicksToDateTime: a date from ticks since 1970."""
    return write_moment(EPOCH + int(ticks))
