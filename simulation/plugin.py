"""A pytest plugin: `pytest_plugins = ["simulation.plugin"]` gives the fixture `simulation`."""

from collections.abc import Callable

import pytest

from simulation.trial import check


@pytest.fixture
def simulation() -> Callable[..., int]:
    """Run handlers through seeded stories; see simulation.trial.check."""
    return check
