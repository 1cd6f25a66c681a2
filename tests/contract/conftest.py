"""A session for each test."""

from itertools import count

import pytest

sessions = (f"contract/{number}?#ü" for number in count())


@pytest.fixture
def session() -> str:
    """Return a session that no other test uses, with characters that no id could hold."""
    return next(sessions)
