"""A session for each test, and Azure on one machine for those over the wire."""

from itertools import count

import pytest

from tests.cloud import adapters, cloud

__all__ = ["adapters", "cloud"]

sessions = (f"contract/{number}?#ü" for number in count())


@pytest.fixture
def session() -> str:
    """Return a session that no other test uses, with characters that no id could hold."""
    return next(sessions)
