"""Open a producer from settings: for asyncio, or for code that blocks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.publishing.blocking import BlockingProducer
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.producer import IdempotentProducer
from shared.settings import Settings
from shared.wiring import open_producer


@asynccontextmanager
async def open_idempotent_producer(
    settings: Settings, options: IdempotentProducerOptions
) -> AsyncIterator[IdempotentProducer]:
    """A producer, open while in the context; at the end running operations end first."""
    async with open_producer(settings) as producer:
        publishing = IdempotentProducer(producer, options)
        try:
            yield publishing
        finally:
            await publishing.close()


def open_blocking_producer(
    settings: Settings, options: IdempotentProducerOptions
) -> BlockingProducer:
    """A producer for threads; use it in a `with`."""
    return BlockingProducer(lambda: open_idempotent_producer(settings, options))
