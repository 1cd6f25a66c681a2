"""The in-memory twin keeps the contract."""

import pytest

from shared.domain.message import Message
from shared.storage.journal import Journal
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import VirtualClock
from tests.contract.bus import BusContract
from tests.contract.journal import JournalContract, session
from tests.contract.journal_blocked import JournalBlockedContract
from tests.contract.journal_directory import JournalDirectoryContract
from tests.contract.journal_extras import JournalExtrasContract
from tests.contract.journal_signs import JournalSignsContract

__all__ = ["session"]


class TestMemoryJournal(
    JournalContract,
    JournalExtrasContract,
    JournalSignsContract,
    JournalBlockedContract,
    JournalDirectoryContract,
):
    @pytest.fixture
    def journal(self) -> Journal:
        return MemoryJournal(VirtualClock())


class TestMemoryBus(BusContract[MemoryBus]):
    @pytest.fixture
    def bus(self) -> MemoryBus:
        self.clock = VirtualClock()
        return MemoryBus(self.clock)

    async def received(self, bus: MemoryBus, queue: str, session: str) -> list[Message]:
        return [
            delivered.message
            for delivered in bus.queues["east", queue]
            if delivered.visible_at <= self.clock.now() and delivered.message.session == session
        ]
