"""A short way for the worker library through the dates of a message.

For each date the library tries the formats it knows with `strptime`, fourteen of them until it
comes to the one without zone, which is the form in which Service Bus metadata has dates (see
`triggers.dotnet.date_json`). That was more than a third of the processor time of an invocation.
Dates in that form are read at once here, with the same result; all others are left to the library.
"""

import re
from datetime import datetime
from typing import Any

from azure.functions import meta

WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,7})?", re.ASCII)


def shorten_way() -> None:
    """Let every converter of the library read dates this way first; doing so twice changes nothing.

    A library without the method that is stepped in front of raises AttributeError.
    """
    converter: Any = meta._BaseConverter
    whole_way = getattr(converter._parse_datetime, "whole_way", converter._parse_datetime.__func__)

    def parse(cls: Any, text: str | None) -> datetime | None:
        found = read(text) if text else None
        return found or whole_way(cls, text)

    parse.whole_way = whole_way  # type: ignore[attr-defined]
    converter._parse_datetime = classmethod(parse)


def read(text: str) -> datetime | None:
    """Read a date without zone, to the microsecond; None for any other text."""
    if not WITHOUT_ZONE.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
