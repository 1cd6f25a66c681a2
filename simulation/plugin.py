"""A pytest plugin: `pytest_plugins = ["simulation.plugin"]` gives the fixture `simulation`."""

from collections.abc import Callable

import pytest

from simulation.testing import check


@pytest.fixture
def simulation() -> Callable[..., int]:
    """Run handlers through seeded simulations; see simulation.testing.check."""
    return check
