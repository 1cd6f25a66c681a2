"""The twins in memory keep the contracts."""

import pytest

from shared.domain.message import Message
from shared.ports import Container
from shared.testkit.memory import MemoryContainer
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import MemoryStore, VirtualClock
from tests.contract.bus import BusContract
from tests.contract.container import ContainerContract


class TestMemoryContainer(ContainerContract):
    @pytest.fixture
    def container(self) -> Container:
        return MemoryContainer(MemoryStore(VirtualClock()))


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
