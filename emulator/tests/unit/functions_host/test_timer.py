"""NCRONTAB schedules and .NET durations."""

import math
from datetime import UTC, datetime, timedelta

import pytest

from local.functions_host.config.host_json import parse_timespan
from local.functions_host.triggers.timer import TimerSchedule

MOMENT = datetime(2013, 12, 31, 23, 59, 50, tzinfo=UTC)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/15 * * * * *", datetime(2014, 1, 1, 0, 0, 0, tzinfo=UTC)),
        ("55 * * * * *", datetime(2013, 12, 31, 23, 59, 55, tzinfo=UTC)),
        ("0 30 9 * * 1-5", datetime(2014, 1, 1, 9, 30, 0, tzinfo=UTC)),
        ("0 0 0 1 2 *", datetime(2014, 2, 1, 0, 0, 0, tzinfo=UTC)),
        ("0 0 12 * Feb Mon-Wed", datetime(2014, 2, 3, 12, 0, 0, tzinfo=UTC)),
        ("0 0 0 13 * 5", datetime(2014, 6, 13, 0, 0, 0, tzinfo=UTC)),
        ("5/20 * * * * *", datetime(2014, 1, 1, 0, 0, 5, tzinfo=UTC)),
    ],
)
def test_the_first_field_is_the_second(expression: str, expected: datetime) -> None:
    assert TimerSchedule.parse(expression).after(MOMENT) == expected


def test_five_fields_begin_with_the_minute() -> None:
    assert TimerSchedule.parse("*/5 * * * *").after(MOMENT) == datetime(2014, 1, 1, tzinfo=UTC)


def test_an_interval_counts_from_the_moment() -> None:
    assert TimerSchedule.parse("01:30:00").after(MOMENT) == MOMENT + timedelta(minutes=90)


@pytest.mark.parametrize(
    "expression",
    [
        "* * * *",
        "61 * * * * *",
        "a b c d e f",
        "@daily",
        "0 0 0 L * *",
        "0 0 0 ? * *",
        "0 0 0 * * 1#2",
        "0 0 0 * * 7",
        "0 0 0 * * 1-7",
        "0 0 0 31 2 *",
        "00:00:00",
        "-00:05:00",
    ],
)
def test_what_is_neither_ncrontab_nor_an_interval_is_an_error(expression: str) -> None:
    with pytest.raises(ValueError, match="schedule"):
        TimerSchedule.parse(expression)


@pytest.mark.parametrize(("expression", "kept"), [("*/15 * * * * *", False), ("0 * * * * *", True)])
def test_the_status_is_kept_from_one_minute_between_runs(expression: str, kept: bool) -> None:
    assert TimerSchedule.parse(expression).is_monitored(MOMENT) is kept


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("00:05:00", 300.0),
        ("1.02:00:00", 93_600.0),
        ("00:00:00.2500000", 0.25),
        ("-00:00:00.0010000", math.inf),
    ],
)
def test_durations_are_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_timespan(text) == seconds


@pytest.mark.parametrize("text", ["5", "00:61:00", "PT5S", ""])
def test_what_is_no_duration_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_timespan(text)
