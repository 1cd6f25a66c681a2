"""The public producer keeps its promises through the real SDKs, against Azure on one machine."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from azure.servicebus.aio import ServiceBusClient

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.domain.message import Message
from shared.engine.publish.publish import Producer
from shared.publishing.opening import open_blocking_producer
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from shared.wiring import Adapters
from tests.cloud import settings_of
from tests.contract.publishing import OPTIONS, PublishingBasics, drafts, expected, numbers, told
from tests.contract.test_wire import receive_all

pytestmark = pytest.mark.wire

SETTINGS = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "0"}
TRIES = 20


class TestPublishingOverTheWire(PublishingBasics):
    @pytest.fixture(autouse=True)
    def in_the_cloud(self, cloud: Cloud, adapters: Adapters) -> None:
        self.cloud = cloud
        self.adapters = adapters

    @asynccontextmanager
    async def opening(
        self, options: IdempotentProducerOptions
    ) -> AsyncIterator[IdempotentProducer]:
        """A producer that knows nothing; connections are shared, they are slow to open."""
        unknowing = Producer(self.adapters.journal, self.adapters.delivery)
        producer = IdempotentProducer(unknowing, options)
        yield producer
        await producer.close()

    async def sent(self, region: str, session: str, how_many: int) -> list[Message]:
        found: list[Message] = []
        connection = self.cloud.namespaces[region].connection_string
        async with ServiceBusClient.from_connection_string(connection) as client:
            for _ in range(TRIES):
                found += await receive_all(client, "lockstep", session)
                if len(found) >= how_many:
                    break
        assert len(found) == how_many
        return found

    async def test_a_dropped_answer_of_the_ledger_changes_nothing(self, session: str) -> None:
        messages, later = drafts(0, 3), drafts(3, 1)
        async with self.opening(OPTIONS) as producer:
            self.cloud.faults.arm(Fault("cosmos", Action.DROP_ANSWER, "batch", times=1))
            await producer.send(messages, session=session)
            await producer.send(later, session=session)

        assert numbers(messages + later) == [0, 1, 2, 3]
        assert told(await self.sent("east", session, 4)) == expected(messages + later)

    def test_threads_publish_through_one_blocking_producer(self, session: str) -> None:
        def work(thread: int) -> list[int | None]:
            own = drafts(0, 3)
            for message in own:
                producer.send([message], session=f"{session}-{thread}")
            return numbers(own)

        settings = settings_of(self.cloud, **SETTINGS)
        with open_blocking_producer(settings, OPTIONS) as producer, ThreadPoolExecutor(3) as pool:
            assert list(pool.map(work, range(3))) == [[0, 1, 2]] * 3
