"""A pytest plugin: `pytest_plugins = ["proof.simulation.plugin"]` gives a fixture `simulation`."""

from collections.abc import Callable

import pytest

from proof.simulation.testing import check


@pytest.fixture
def simulation() -> Callable[..., int]:
    """Run handlers through seeded simulations; see proof.simulation.testing.check."""
    return check
