"""The short way through dates ends where the library's own way ends."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.functions import meta

from local.functions_host import dates

CONVERTER: Any = meta._BaseConverter
WHOLE_WAY: Callable[[Any, str], datetime] = getattr(
    CONVERTER._parse_datetime, "whole_way", CONVERTER._parse_datetime.__func__
)


@pytest.mark.parametrize(
    "text",
    [
        "2013-12-31T23:59:50",
        "2013-12-31T23:59:50.1",
        "2013-12-31T23:59:50.123456",
        "0001-01-01T00:00:00",
        "9999-12-31T23:59:59.9999999",
    ],
)
def test_a_date_without_zone_is_read_as_the_library_would(text: str) -> None:
    found = dates.read(text)

    assert found is not None
    assert found == WHOLE_WAY(CONVERTER, text)
    assert found.tzinfo is None


@pytest.mark.parametrize(
    "text", ["2013-12-31T23:59:50Z", "12/31/2013 23:59:50", "2013-12-31T24:00:00", "yesterday", ""]
)
def test_every_other_text_is_left_to_the_library(text: str) -> None:
    assert dates.read(text) is None


def test_every_converter_takes_the_short_way_and_keeps_the_long_one() -> None:
    dates.shorten_way()
    dates.shorten_way()

    parse = CONVERTER._parse_datetime
    assert parse.whole_way is WHOLE_WAY
    assert parse("2013-12-31T23:59:50") == datetime(2013, 12, 31, 23, 59, 50)  # noqa: DTZ001
    assert parse("2013-12-31T23:59:50Z") == datetime(2013, 12, 31, 23, 59, 50, tzinfo=UTC)
    assert parse(None) is None
    with pytest.raises(ValueError, match="time data"):
        parse("yesterday")
