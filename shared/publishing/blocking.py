"""The idempotent producer for code that blocks: many threads, and one more with the event loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from shared.domain.errors import ProducerClosed
from shared.engine.publish.publish import Published
from shared.publishing.batch import MessageBatch
from shared.publishing.producer import IdempotentProducer, Outgoing
from shared.publishing.properties import PartitionPublishingProperties

type Opening = Callable[[], AbstractAsyncContextManager[IdempotentProducer]]


@dataclass(frozen=True, slots=True)
class Running:
    """A producer and the loop it lives on."""

    producer: IdempotentProducer
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Event

    def end(self) -> None:
        """Let the producer close, from any thread."""
        self.loop.call_soon_threadsafe(self.ended.set)


class BlockingProducer:
    """See IdempotentProducer, whose promises and errors these are. Safe to share among threads.

    A `with` opens it and closes it: then running operations end, the thread is joined, and later
    calls raise ProducerClosed. Not for use from an event loop, nor across a fork.
    """

    def __init__(self, opening: Opening) -> None:
        self.opening = opening
        self.gate = threading.Lock()
        self.running: Running | None = None
        self.leaving = ExitStack()

    def __enter__(self) -> Self:
        opened: Future[Running] = Future()
        with ExitStack() as leaving:
            thread = leaving.enter_context(ThreadPoolExecutor(1, "lockstep-producer"))
            life = thread.submit(asyncio.run, live(self.opening, opened))
            leaving.callback(life.result)
            leaving.callback(opened.add_done_callback, end_if_opened)
            self.running = opened.result()
            self.leaving = leaving.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self.gate:
            self.running = None
        self.leaving.close()

    def get_partition_publishing_properties(self, session: str) -> PartitionPublishingProperties:
        """See IdempotentProducer."""
        return self.wait_for(lambda p: p.get_partition_publishing_properties(session))

    def create_batch(self, session: str, max_size_in_bytes: int | None = None) -> MessageBatch:
        """See IdempotentProducer. A batch belongs to one thread at a time."""
        return self.wait_for(lambda p: p.create_batch(session, max_size_in_bytes))

    def send(self, outgoing: Outgoing, *, session: str | None = None) -> Published:
        """See IdempotentProducer. An interrupt while waiting cancels the operation."""
        return self.wait_for(lambda p: p.send(outgoing, session=session))

    def wait_for[T](self, call: Callable[[IdempotentProducer], Coroutine[Any, Any, T]]) -> T:
        """Run a call on the loop, from any thread, and wait for its answer."""
        with self.gate:
            if self.running is None:
                raise ProducerClosed("the producer is not open")
            calling = call(self.running.producer)
            answer = asyncio.run_coroutine_threadsafe(calling, self.running.loop)
        try:
            return answer.result()
        except BaseException:
            answer.cancel()
            raise


async def live(opening: Opening, opened: Future[Running]) -> None:
    """Open a producer on this thread's loop, say so, and close it when it is ended."""
    try:
        async with opening() as producer:
            running = Running(producer, asyncio.get_running_loop(), asyncio.Event())
            opened.set_result(running)
            await running.ended.wait()
    except BaseException as error:
        if not opened.done():
            opened.set_exception(error)
        raise


def end_if_opened(opened: Future[Running]) -> None:
    """End what was opened; what failed to open has ended."""
    if opened.exception() is None:
        opened.result().end()
