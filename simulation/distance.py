"""Journal and bus as one process sees them: from afar, through calls that go wrong."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.message import Message
from simulation.broker import Namespace
from simulation.loop import now
from simulation.process import Process
from simulation.witness import WitnessedJournal

WRITES = frozenset(
    {"append", "replace", "add_pending", "acknowledge", "stage", "save_ledger", "compact"}
)


class DistantJournal:
    """See ports.Journal. Every call goes through the process and may go wrong there."""

    def __init__(self, process: Process, journal: WitnessedJournal) -> None:
        self.process = process
        self.journal = journal

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        """A method of the twin, called from afar."""
        method = getattr(self.journal, name)
        writes = name in WRITES

        async def distant(*arguments: Any, **options: Any) -> Any:
            if writes and self.journal.is_read_only(now()):
                await self.process.wait(0.01)
                raise Unavailable(f"{name}: the write region fails over")
            return await self.process.call(
                name, lambda: finished(method(*arguments, **options)), writes=writes
            )

        return distant

    async def head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The newest entry, or an older one where that will do."""
        head: Entry | None = await self.process.call(
            "head", lambda: finished(self.journal.head(session)), writes=False
        )
        if newest or head is None or head.position == 0:
            return head
        weather = self.process.weather
        where = f"{self.process.name} head"
        if not weather.strikes(weather.climate.stale_reads, "stale read", where, now()):
            return head
        return self.journal.entry_at(session, head.position - 1) or head


def finished[T](work: Awaitable[T]) -> T:
    """The result of a coroutine of the twin, which never waits for anything."""
    coroutine: Any = work
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("the twin waited for something")


@dataclass(frozen=True, slots=True)
class DistantBus:
    """See ports.Bus: the namespaces of all regions, as one process reaches them."""

    process: Process
    namespaces: dict[str, Namespace]

    async def send(
        self, region: str, queue: str, messages: Sequence[Message], *, delay_seconds: float = 0.0
    ) -> None:
        """Send, perhaps only the first of them."""
        namespace = self.namespaces[region]
        if namespace.is_down(now()):
            await self.process.wait(0.01)
            raise Unavailable(f"region {region} is dark")
        sent = self.first_of(messages, f"{self.process.name} send {region} {queue}")
        await self.process.call(
            f"send {region} {queue}",
            lambda: namespace.accept(queue, sent, now() + delay_seconds),
            writes=True,
        )
        if len(sent) < len(messages):
            raise OutcomeUnknown("part of a batch was sent")

    def first_of(self, messages: Sequence[Message], where: str) -> Sequence[Message]:
        """All messages, or as many as get through."""
        weather = self.process.weather
        if len(messages) < 2 or not weather.strikes(
            weather.climate.calls, "half a batch", where, now()
        ):
            return messages
        return messages[: int(weather.chance.delay(len(messages)))]
