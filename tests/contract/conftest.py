"""A session for each test, and a journal in memory."""

from itertools import count

import pytest

from shared.storage.journal import Journal
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_store import VirtualClock

sessions = (f"contract/{number}?#ü" for number in count())


@pytest.fixture
def session() -> str:
    """Return a session that no other test uses, with characters that no id could hold."""
    return next(sessions)


@pytest.fixture
def journal() -> Journal:
    return MemoryJournal(VirtualClock())
