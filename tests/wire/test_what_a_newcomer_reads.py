"""The figures of `python -m proof.bench.path` hold: how much code a message passes, and more."""

import pytest

from proof.bench.path.__main__ import PathFigure, take_figures

pytestmark = pytest.mark.wire

REACHED = (
    "pure message: files",
    "pure message: functions",
    "pure message: depth",
    "saga step: files",
    "saga step: functions",
    "saga step: depth",
    "send in the local broker: files",
    "send in the local broker: depth",
    "floors of the engine",
    "repeated names in shared, functions, spark",
)
# What is not where it should be yet, and must not grow: lower these numbers, never raise them.
# `python -m proof.bench.path` shows the aims, and with `--repeated` it lists the names.
SHRINKING = {
    "repeated names in the whole tree": 36,
}


@pytest.fixture(scope="module")
def figures() -> dict[str, PathFigure]:
    return {figure.name: figure for figure in take_figures()}


@pytest.mark.parametrize("name", REACHED)
def test_the_aim_holds(figures: dict[str, PathFigure], name: str) -> None:
    figure = figures[name]

    assert figure.aim is not None
    assert figure.value <= figure.aim, "`python -m proof.bench.path --list WAY` lists the functions"


@pytest.mark.parametrize("name", SHRINKING)
def test_what_is_to_shrink_does_not_grow(figures: dict[str, PathFigure], name: str) -> None:
    assert figures[name].value <= SHRINKING[name]


def test_something_was_recorded(figures: dict[str, PathFigure]) -> None:
    assert min(figures[name].value for name in [*REACHED[:8], *SHRINKING]) > 3
