"""The in-memory twin of the bus: the queues of all regions as lists."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from shared.adapters.injected_faults import FaultPlan
from shared.adapters.memory_store import VirtualClock
from shared.domain.errors import InvalidMessage, Unavailable
from shared.domain.message import BODY_BYTES_MAX, Message


@dataclass(frozen=True, slots=True)
class QueuedCopy:
    """A message in a queue, and when it becomes visible."""

    message: Message
    visible_at: float


class MemoryBus:
    """A Bus whose queues are lists.

    A region or a single queue of it in `unavailable` refuses for now; a message over the bytes that
    `largest` gives for a queue is refused for good, after those before it were taken.
    """

    def __init__(self, clock: VirtualClock, fault_plan: FaultPlan | None = None) -> None:
        self.clock = clock
        self.fault_plan = fault_plan or FaultPlan()
        self.queues: dict[tuple[str, str], list[QueuedCopy]] = defaultdict(list)
        self.unavailable: set[str | tuple[str, str]] = set()
        self.largest: dict[tuple[str, str], int] = {}

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        if self.unavailable & {region, (region, queue)}:
            raise Unavailable(f"region {region} is unavailable")
        self.fault_plan.perform(
            f"send.{region}", lambda: self.put(region, queue, messages, delay_seconds)
        )

    def put(
        self, region: str, queue: str, messages: Sequence[Message], delay_seconds: float
    ) -> None:
        """Take messages up to the first that is too large."""
        visible_at = self.clock.now() + delay_seconds
        largest = self.largest.get((region, queue), BODY_BYTES_MAX)
        for message in messages:
            if len(message.body) > largest:
                raise InvalidMessage(f"a message is too large for {queue!r}")
            self.queues[region, queue].append(QueuedCopy(message, visible_at))

    def messages(self, region: str, queue: str) -> list[Message]:
        """Everything a queue was sent, in order."""
        return [copy.message for copy in self.queues[region, queue]]
