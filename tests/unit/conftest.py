"""Every test that asks for a world has one of its own."""

import pytest

from tests.world import World


@pytest.fixture
def world() -> World:
    """Two healthy regions, nothing sent."""
    return World()
