"""The figures of `python -m bench.path` hold: how much code one message passes, and the rest."""

import pytest

from bench.path.__main__ import PathFigure, take_figures

pytestmark = [pytest.mark.wire]

FIGURES = (
    "pure message: files",
    "pure message: functions",
    "pure message: depth",
    "saga step: files",
    "saga step: depth",
    "send in the local broker: files",
    "send in the local broker: depth",
    "floors of the engine",
    "repeated names in shared, functions, spark",
    "repeated names in the whole tree",
    "lines without tests",
)


@pytest.fixture(scope="module")
def figures() -> dict[str, PathFigure]:
    return {figure.name: figure for figure in take_figures()}


@pytest.mark.parametrize("name", FIGURES)
def test_the_aim_holds(figures: dict[str, PathFigure], name: str) -> None:
    figure = figures[name]

    assert figure.aim is not None
    assert figure.value <= figure.aim, "see `python -m bench.path --help` for the lists"


def test_something_was_recorded(figures: dict[str, PathFigure]) -> None:
    assert min(figures[name].value for name in FIGURES[:8]) > 3
