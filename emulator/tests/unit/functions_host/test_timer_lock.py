"""A timer has one follower in a region, and a killed one keeps the others waiting for its time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from local.functions_host.triggers.timer_lock import TimerLock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PERIOD = 15.0


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


@pytest.fixture
def locks(tmp_path: Path) -> tuple[TimerLock, TimerLock]:
    path = tmp_path / "timers/east/sweep.lock"
    return TimerLock(path, "first"), TimerLock(path, "second")


def test_one_holds_it_until_it_is_given_back(locks: tuple[TimerLock, TimerLock]) -> None:
    first, second = locks

    assert first.take(NOW, PERIOD)
    assert not second.take(later(1), PERIOD)
    first.give_back(later(2))
    assert second.take(later(2), PERIOD)
    assert not first.take(later(3), PERIOD)


def test_when_the_holder_was_killed_the_lock_lasts_from_its_last_renewal(
    locks: tuple[TimerLock, TimerLock],
) -> None:
    first, second = locks
    first.take(NOW, PERIOD)
    first.take(later(7.5), PERIOD)

    assert not second.take(later(22.4), PERIOD)
    assert second.take(later(22.5), PERIOD)


def test_who_lost_it_gives_nothing_back(locks: tuple[TimerLock, TimerLock]) -> None:
    first, second = locks
    first.take(NOW, PERIOD)
    second.take(later(PERIOD), PERIOD)

    first.give_back(later(16))

    assert not first.take(later(17), PERIOD)


@pytest.mark.parametrize("left", ["", "{", "[]", '{"Owner":"x","Until":"soon"}'])
def test_when_a_kill_left_half_a_file_the_lock_is_free(tmp_path: Path, left: str) -> None:
    path = tmp_path / "sweep.lock"
    path.write_text(left)

    assert TimerLock(path, "first").take(NOW, PERIOD)
    assert not TimerLock(path, "second").take(NOW, PERIOD)


def test_without_a_file_nobody_waits() -> None:
    assert TimerLock(None, "first").take(NOW, PERIOD)
    assert TimerLock(None, "second").take(NOW, PERIOD)
