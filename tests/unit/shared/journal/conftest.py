"""A journal in memory, and a session with characters that no id could hold."""

import pytest

from shared.storage.journal import Journal
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_store import VirtualClock


@pytest.fixture
def session() -> str:
    return "session/1?#ü"


@pytest.fixture
def journal() -> Journal:
    return MemoryJournal(VirtualClock())
