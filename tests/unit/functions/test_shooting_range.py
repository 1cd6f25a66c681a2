"""The shooting range, under everything that messages go through."""

import pytest

from functions.handlers.shooting_range import ROUND_ATTEMPTS, handlers
from shared.testkit import exercise, given

GAME = "game-1"


@pytest.mark.slow
def test_shots_are_judged_against_the_target_as_it_stood() -> None:
    report = exercise(
        handlers,
        [
            given(GAME, "range.move", {"position": 5}),
            given(GAME, "range.fire", {"position": 5}),
            given(GAME, "range.move", {"position": 10}),
            given(GAME, "range.fire", {"position": 5}),
        ],
    )

    assert report.state(GAME) == {"position": 10, "attempts": 1}
    assert [shot["attempt"] for shot in report.outputs("range.hit")] == [1]
    assert [shot["position"] for shot in report.outputs("range.missed")] == [5]
    assert {message.session for message in report.messages} == {f"{GAME}/score"}
    assert report.state(f"{GAME}/score") == {"hits": 1, "misses": 1}


def test_a_round_ends_with_its_last_attempt() -> None:
    shots = [given(GAME, "range.fire", {"position": 0}) for _ in range(ROUND_ATTEMPTS)]

    report = exercise(handlers, shots, hash_seeds=())

    assert len(report.outputs("range.hit")) == ROUND_ATTEMPTS
    assert report.state(GAME)["attempts"] == 0
    assert report.state(f"{GAME}/score") == {"hits": ROUND_ATTEMPTS, "misses": 0}
    assert len({shot["id"] for shot in report.outputs()}) == ROUND_ATTEMPTS


@pytest.mark.parametrize("position", [-1, 100])
def test_a_shot_outside_the_range_is_a_fault(position: int) -> None:
    outside = given(GAME, "range.fire", {"position": position})

    report = exercise(handlers, [outside], hash_seeds=(), faults=True)

    (fault,) = report.faults
    assert "position" in fault.reason
    assert report.state(GAME) == {}
