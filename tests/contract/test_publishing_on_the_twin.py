"""The public producer keeps its promises on the in-memory twin."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from shared.domain.message import Message
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from tests.contract.publishing import Opened, PublishingContract
from tests.world import World


class TestPublishingOnTheTwin(PublishingContract):
    @pytest.fixture(autouse=True)
    def in_a_world(self) -> None:
        self.world = World()

    def opening(self, options: IdempotentProducerOptions) -> Opened:
        return opened(self.world, options)

    async def sent(self, region: str, session: str, how_many: int) -> list[Message]:
        found = [m for m in self.world.bus.messages(region, "in") if m.session == session]
        assert len(found) == how_many
        return found


@asynccontextmanager
async def opened(
    world: World, options: IdempotentProducerOptions
) -> AsyncIterator[IdempotentProducer]:
    """A producer of its own, as `open_idempotent_producer` opens one."""
    producer = IdempotentProducer(world.producer(), options)
    yield producer
    await producer.close()
