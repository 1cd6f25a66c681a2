"""Send what several sessions have for one queue in one batch, over one connection to a namespace.

The producer sends session by session, and nothing of that changes: each of its sends still has an
outcome of its own. Only on their way to a queue sends that wait at the same time share a batch. A
namespace that says that it is busy gets the same batch again, and all of them more slowly.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from dataclasses import dataclass

from shared.domain.errors import InvalidMessage, Misconfigured, OutcomeUnknown, Throttled
from shared.domain.message import Message
from shared.domain.wire import BATCH_BYTES_MAX, MESSAGE_OVERHEAD_BYTES, wire_bytes
from shared.ports import Bus, DeadLetter

# So many turns of the event loop without another send mean that no session is ready with one.
TURNS_WITHOUT_MORE = 5
# More is not waited for: that many sends of one message each fill a batch.
SENDS_AT_ONCE = BATCH_BYTES_MAX // MESSAGE_OVERHEAD_BYTES
# For how long a batch is given to a namespace that is busy; then its sends have failed.
BUSY_SECONDS_MAX = 20.0
# The pause between batches after a namespace was busy: twice as long each time, and shorter with
# each batch that was taken, until it is not worth a pause.
PAUSE_SECONDS_MIN, PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.02, 0.25, 8.0
PAUSE_AFTER_SUCCESS = 0.8


@dataclass(slots=True)
class Pace:
    """The pace at which a queue takes batches: the pause before each, in seconds."""

    seconds: float = 0.0

    def slow_down(self, wanted: float | None = None) -> None:
        """Slow down after a refusal for load; `wanted` is how long the service asks to wait."""
        longer = min(max(2 * self.seconds, PAUSE_SECONDS), PAUSE_SECONDS_MAX)
        self.seconds = max(longer, wanted or 0.0)

    def speed_up(self) -> None:
        shorter = PAUSE_AFTER_SUCCESS * self.seconds
        self.seconds = shorter if shorter >= PAUSE_SECONDS_MIN else 0.0


@dataclass(frozen=True, slots=True)
class WaitingSend:
    """A send that waits for its turn; `outcome` is what its caller gets."""

    messages: Sequence[Message]
    delay_seconds: float
    outcome: asyncio.Future[None]

    @property
    def size(self) -> int:
        return sum(map(wire_bytes, self.messages))


class GatheringBus:
    """A Bus whose sends to one queue go one after another, many sessions at a time.

    A queue of a partitioned namespace refuses several sessions in one batch. Such a refusal is
    noticed, and from then on each send to that queue goes as it would without this class.
    """

    def __init__(self, bus: Bus, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self.bus = bus
        self.sleep = sleep
        self.paces: defaultdict[tuple[str, str], Pace] = defaultdict(Pace)
        self.waiting: defaultdict[tuple[str, str], deque[WaitingSend]] = defaultdict(deque)
        self.running: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.partitioned: set[tuple[str, str]] = set()
        # For so long batches have waited because a namespace was busy.
        self.busy_seconds = 0.0

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """See Bus.send: a failure of a batch is one of every send that was in it."""
        place = (region, queue)
        if place in self.partitioned:
            await self.bus.send(region, queue, messages, delay_seconds=delay_seconds)
            return
        outcome = asyncio.get_running_loop().create_future()
        self.waiting[place].append(WaitingSend(messages, delay_seconds, outcome))
        if place not in self.running:
            self.running[place] = asyncio.create_task(self.send_waiting(region, queue))
        await outcome

    async def send_waiting(self, region: str, queue: str) -> None:
        """Send until nothing waits; what comes meanwhile gathers."""
        waiting = self.waiting[region, queue]
        try:
            await wait_for_more(waiting)
            while sends := take_batch(waiting):
                await self.send_together(region, queue, sends)
                await wait_for_more(waiting)
        finally:
            del self.running[region, queue]
            # There is none unless this was cancelled.
            for send in waiting:
                send.outcome.cancel()

    async def send_together(self, region: str, queue: str, sends: Sequence[WaitingSend]) -> None:
        """Send as one; after a refusal for good send apart, so that only its own caller fails."""
        try:
            error = await self.attempt(region, queue, sends)
            if isinstance(error, OutcomeUnknown):
                # A region that is silent would keep what waits behind this for as long again.
                waiting = self.waiting[region, queue]
                settle([*sends, *waiting], error)
                waiting.clear()
                return
            if len(sends) == 1 or not isinstance(error, InvalidMessage | Misconfigured):
                settle(sends, error)
                return
            was_queue_refused = isinstance(error, Misconfigured)
            for place, send in enumerate(sends):
                error = await self.attempt(region, queue, [send])
                if error is not None and not isinstance(error, InvalidMessage):
                    # This stands in the way of those after it as well.
                    settle(sends[place:], error)
                    return
                if was_queue_refused and error is None:
                    self.partitioned.add((region, queue))
                settle([send], error)
        except BaseException:
            for send in sends:
                send.outcome.cancel()
            raise

    async def attempt(
        self, region: str, queue: str, sends: Sequence[WaitingSend]
    ) -> Exception | None:
        """Send these messages in one send; returns what the bus raises, or None if it took them.

        While the namespace is busy they are sent again: it has taken none of them.
        """
        messages = [message for send in sends for message in send.messages]
        delay, pace = sends[0].delay_seconds, self.paces[region, queue]
        waited = 0.0
        while True:
            if pace.seconds:
                await self.sleep(pace.seconds)
                waited += pace.seconds
                self.busy_seconds += pace.seconds
            try:
                await self.bus.send(region, queue, messages, delay_seconds=delay)
            except Throttled as error:
                pace.slow_down(error.retry_after_seconds)
                if waited + pace.seconds > BUSY_SECONDS_MAX:
                    return error
            except Exception as error:
                return error
            else:
                pace.speed_up()
                return None

    async def end_dead_letters(
        self, region: str, queue: str, limit: int, end: Callable[[DeadLetter], Awaitable[bool]]
    ) -> int:
        return await self.bus.end_dead_letters(region, queue, limit, end)

    async def look(self, region: str, queue: str) -> None:
        await self.bus.look(region, queue)

    async def close(self) -> None:
        """Give up what still waits; the bus itself stays open."""
        tasks = list(self.running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def wait_for_more(waiting: Sized) -> None:
    """Let the sessions that are ready come, which they do one after another; no time is waited."""
    turns = 0
    while turns < TURNS_WITHOUT_MORE and len(waiting) < SENDS_AT_ONCE:
        before = len(waiting)
        await asyncio.sleep(0)
        turns = 0 if len(waiting) > before else turns + 1


def settle(sends: Sequence[WaitingSend], error: Exception | None) -> None:
    """Give the callers their outcome, but for those that were cancelled meanwhile."""
    for send in sends:
        if send.outcome.done():
            continue
        if error is None:
            send.outcome.set_result(None)
        else:
            send.outcome.set_exception(error)


def take_batch(waiting: deque[WaitingSend]) -> list[WaitingSend]:
    """Remove the first sends that have one delay and fit one batch; at least one, if any waits."""
    sends: list[WaitingSend] = []
    size = 0
    while waiting:
        first = waiting[0]
        if first.outcome.done():
            # Its caller has gone, and nothing of it was sent.
            waiting.popleft()
            continue
        size += first.size
        if sends and (size > BATCH_BYTES_MAX or first.delay_seconds != sends[0].delay_seconds):
            break
        sends.append(waiting.popleft())
    return sends
