"""The status of a timer, over restarts."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from local.functions_host.triggers.timer import ScheduleMonitor, TimerSchedule

HOURLY = TimerSchedule("0 0 * * * *")


def at(hour: int, minute: int = 0) -> datetime:
    return datetime(2013, 12, 31, hour, minute, tzinfo=UTC)


def test_a_first_start_is_never_past_due_and_the_second_counts_from_it(tmp_path: Path) -> None:
    path = tmp_path / "timers" / "sweep.json"

    assert not ScheduleMonitor(HOURLY, path).begin(at(9, 30))
    assert not ScheduleMonitor(HOURLY, path).begin(at(9, 59))
    assert ScheduleMonitor(HOURLY, path).begin(at(10, 1))


def test_an_occurrence_missed_since_the_last_run_is_past_due(tmp_path: Path) -> None:
    monitor = ScheduleMonitor(HOURLY, tmp_path / "sweep.json")
    monitor.begin(at(9, 30))
    monitor.record_run(at(10))

    again = ScheduleMonitor(HOURLY, tmp_path / "sweep.json")

    assert not again.begin(at(10, 59))
    assert again.begin(at(11, 1))
    assert again.document() == {
        "Last": "2013-12-31T10:00:00+00:00",
        "LastUpdated": "2013-12-31T10:00:00+00:00",
        "Next": "2013-12-31T11:00:00+00:00",
    }


def test_without_a_file_nothing_is_kept() -> None:
    monitor = ScheduleMonitor(HOURLY, None)
    monitor.begin(at(9))
    monitor.record_run(at(9))

    assert not ScheduleMonitor(HOURLY, None).begin(at(12))


@pytest.mark.parametrize("content", ["", "[]", '{"Last": "yesterday"}'])
def test_a_file_that_is_no_status_is_begun_anew(tmp_path: Path, content: str) -> None:
    path = tmp_path / "sweep.json"
    path.write_text(content)

    assert not ScheduleMonitor(HOURLY, path).begin(at(9, 30))
    assert ScheduleMonitor(HOURLY, path).begin(at(10, 1))
