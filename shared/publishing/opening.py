"""Open a producer from settings, for asyncio or for code that blocks in any number of threads."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from shared.domain.errors import ProducerClosed
from shared.engine.publish.publish import Published
from shared.publishing.message import MessageBatch
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingProperties
from shared.publishing.producer import IdempotentProducer, Outgoing
from shared.settings import Settings
from shared.wiring import open_producer

type OpenProducer = Callable[[], AbstractAsyncContextManager[IdempotentProducer]]


@asynccontextmanager
async def open_idempotent_producer(
    settings: Settings, options: IdempotentProducerOptions
) -> AsyncIterator[IdempotentProducer]:
    """A producer that is open inside the `with`. Running operations end before it closes."""
    async with open_producer(settings) as producer:
        publishing = IdempotentProducer(producer, options)
        try:
            yield publishing
        finally:
            await publishing.close()


def open_blocking_producer(
    settings: Settings, options: IdempotentProducerOptions
) -> "BlockingProducer":
    """A producer for code that blocks; a `with` opens and closes it."""
    return BlockingProducer(lambda: open_idempotent_producer(settings, options))


@dataclass(frozen=True, slots=True)
class RunningProducer:
    producer: IdempotentProducer
    loop: asyncio.AbstractEventLoop
    stopped: asyncio.Event

    def stop(self) -> None:
        """Make the producer close. May be called from any thread."""
        self.loop.call_soon_threadsafe(self.stopped.set)


class BlockingProducer:
    """IdempotentProducer for threads, with the same promises and errors. Threads may share it.

    It runs the event loop in a thread of its own. A `with` opens it. At the end of the `with`
    running operations end, the thread is joined, and later calls raise ProducerClosed. It must
    not be used from an event loop, and it does not survive a fork.
    """

    def __init__(self, open_async: OpenProducer) -> None:
        self.open_async = open_async
        self.lock = threading.Lock()
        self.running: RunningProducer | None = None
        self.exits = ExitStack()

    def __enter__(self) -> Self:
        opened: Future[RunningProducer] = Future()
        # If opening fails, or is interrupted, the stack still stops the producer and joins the
        # thread; only a producer that did open keeps them for __exit__.
        with ExitStack() as exits:
            thread = exits.enter_context(ThreadPoolExecutor(1, "lockstep-producer"))
            lifetime = thread.submit(asyncio.run, keep_open(self.open_async, opened))
            exits.callback(lifetime.result)
            exits.callback(opened.add_done_callback, stop_if_opened)
            self.running = opened.result()
            self.exits = exits.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.lock:
            self.running = None
        self.exits.close()

    def get_partition_publishing_properties(self, session: str) -> PartitionPublishingProperties:
        """See IdempotentProducer."""
        return self.call(lambda p: p.get_partition_publishing_properties(session))

    def create_batch(self, session: str, max_size_in_bytes: int | None = None) -> MessageBatch:
        """See IdempotentProducer. Only one thread at a time may use a batch."""
        return self.call(lambda p: p.create_batch(session, max_size_in_bytes))

    def send(self, outgoing: Outgoing, *, session: str | None = None) -> Published:
        """See IdempotentProducer. An interrupt while waiting cancels the operation."""
        return self.call(lambda p: p.send(outgoing, session=session))

    def call[T](self, method: Callable[[IdempotentProducer], Coroutine[Any, Any, T]]) -> T:
        # The lock keeps __exit__ from stopping the loop between the check and the submission.
        with self.lock:
            if self.running is None:
                raise ProducerClosed("the producer is not open")
            coroutine = method(self.running.producer)
            future = asyncio.run_coroutine_threadsafe(coroutine, self.running.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


async def keep_open(open_async: OpenProducer, opened: Future[RunningProducer]) -> None:
    """Open a producer on this thread's loop, hand it over, and close it when it is stopped."""
    try:
        async with open_async() as producer:
            running = RunningProducer(producer, asyncio.get_running_loop(), asyncio.Event())
            opened.set_result(running)
            await running.stopped.wait()
    except BaseException as error:
        if not opened.done():
            opened.set_exception(error)
        raise


def stop_if_opened(opened: Future[RunningProducer]) -> None:
    """Stop the producer. One that failed to open has ended by itself."""
    if opened.exception() is None:
        opened.result().stop()
