"""Every scenario happens in a world of its own."""

import pytest

from tests.business import BusinessWorld


@pytest.fixture
def world() -> BusinessWorld:
    """Two healthy regions, nothing sent."""
    return BusinessWorld()
