"""Dates without zone are read directly, with the result the library's own reading has."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.functions import meta

from local.functions_host.worker.worker import parse_date_without_zone, speed_up_date_parsing

CONVERTER: Any = meta._BaseConverter
ORIGINAL: Callable[[Any, str], datetime] = getattr(
    CONVERTER._parse_datetime, "original", CONVERTER._parse_datetime.__func__
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
    found = parse_date_without_zone(text)

    assert found is not None
    assert found == ORIGINAL(CONVERTER, text)
    assert found.tzinfo is None


@pytest.mark.parametrize(
    "text", ["2013-12-31T23:59:50Z", "12/31/2013 23:59:50", "2013-12-31T24:00:00", "yesterday", ""]
)
def test_every_other_text_is_left_to_the_library(text: str) -> None:
    assert parse_date_without_zone(text) is None


def test_every_converter_reads_them_directly_and_keeps_the_library_for_others() -> None:
    speed_up_date_parsing()
    speed_up_date_parsing()

    parse = CONVERTER._parse_datetime
    assert parse.original is ORIGINAL
    assert parse("2013-12-31T23:59:50") == datetime(2013, 12, 31, 23, 59, 50)  # noqa: DTZ001
    assert parse("2013-12-31T23:59:50Z") == datetime(2013, 12, 31, 23, 59, 50, tzinfo=UTC)
    assert parse(None) is None
    with pytest.raises(ValueError, match="time data"):
        parse("yesterday")
