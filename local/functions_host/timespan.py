"""Durations in the notation of .NET: `hh:mm:ss`, `d.hh:mm:ss`, with fractions and a sign."""

import math
import re

PATTERN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>\d{1,2}):(?P<minutes>[0-5]?\d)"
    r"(?::(?P<seconds>[0-5]?\d(?:\.\d{1,7})?))?"
)


def seconds_of(text: str) -> float:
    """Return the duration in seconds; a negative one means without limit and is infinity.

    Anything that is not a duration raises ValueError.
    """
    match = PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 00:05:00")
    if match["sign"]:
        return math.inf
    hours = int(match["days"] or 0) * 24 + int(match["hours"])
    return hours * 3600 + int(match["minutes"]) * 60 + float(match["seconds"] or 0)
