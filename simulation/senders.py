"""Who sends: producers that die and begin again, senders that number for themselves, and others."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.domain.errors import LockstepError, ProducerDisconnected
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.publish.publish import Producer
from simulation.host import QUEUE
from simulation.loop import now
from simulation.process import Process
from simulation.workload import Line, Series, Workload

if TYPE_CHECKING:
    from simulation.world import World

REGION = "east"
THINK_SECONDS_MAX = 3.0
AGAIN_SECONDS_MAX = 2.0


@dataclass
class Mailed:
    """What senders were told: messages that are safe, and operations whose fate nobody knows."""

    safe: list[Message] = field(default_factory=list)
    # By session and producer group: all of an operation, or nothing of it.
    doubtful: list[tuple[str, str, Sequence[Draft]]] = field(default_factory=list)


@dataclass
class Senders:
    """Everybody who sends a workload."""

    world: "World"
    mailed: Mailed = field(default_factory=Mailed)

    async def send(self, load: Workload) -> None:
        """Send everything; ends when everything is safe, or its sender was fenced."""
        await asyncio.gather(
            self.send_plain(load.plain),
            self.send_plain(load.conflicting),
            *(self.publish_line(line) for line in load.lines),
            *(self.send_series(series) for series in load.series),
        )

    async def think(self, longest: float) -> None:
        """Do something else for a while."""
        await asyncio.sleep(self.world.chance.delay(longest))

    async def publish_line(self, line: Line) -> None:
        """Publish operation by operation, each again until it is safe."""
        await asyncio.sleep(line.begin_seconds)
        desk = Desk(self.world, f"producer {line.group}/{line.level} of {line.session}")
        options = ProducerOptions(line.group, line.level)
        for operation in line.operations:
            await self.think(THINK_SECONDS_MAX)
            try:
                while (sent := await desk.publish(line.session, operation, options)) is None:
                    await self.think(AGAIN_SECONDS_MAX)
            except ProducerDisconnected:
                self.mailed.doubtful.append((line.session, line.group, operation))
                return
            self.mailed.safe += sent

    async def send_series(self, series: Series) -> None:
        """Send numbered messages in order, each again until it is safe."""
        await asyncio.sleep(series.begin_seconds)
        desk = Desk(self.world, f"sender of {series.messages[0].session}")
        for message in series.messages:
            await self.think(THINK_SECONDS_MAX)
            while not await desk.send(message):
                await self.think(AGAIN_SECONDS_MAX)
            self.mailed.safe.append(message)

    async def send_plain(self, messages: Sequence[Message]) -> None:
        """Put copies into both regions, again until each has it."""
        delivery = self.world.delivery(self.world.new_process("sender", REGION))
        for message in messages:
            await self.think(THINK_SECONDS_MAX)
            for region, namespace in self.world.namespaces.items():
                if namespace.down is not None and namespace.is_down(now()):
                    await asyncio.sleep(namespace.down[1] - now())
                delay = delivery.delay_in(region, message.session)
                namespace.accept(QUEUE, [message], now() + delay)
            self.mailed.safe.append(message)


@dataclass
class Desk:
    """Where one sender works: in a process that is begun again when it dies."""

    world: "World"
    name: str
    process: Process | None = None
    producer: Producer | None = None

    def open(self) -> tuple[Process, Producer]:
        """A process that lives, and its producer."""
        if self.process is None or self.producer is None or self.process.is_dead:
            self.process = self.world.new_process(self.name, REGION)
            self.producer = self.world.producer(self.process)
        return self.process, self.producer

    async def publish(
        self, session: str, drafts: Sequence[Draft], options: ProducerOptions
    ) -> Sequence[Message] | None:
        """The messages, if they are known to be safe. Raises ProducerDisconnected."""
        process, producer = self.open()
        answers: list[Sequence[Message]] = []
        refusals: list[ProducerDisconnected] = []

        async def attempt() -> None:
            try:
                answers.append((await producer.publish(session, drafts, options)).messages)
            except ProducerDisconnected as refusal:
                refusals.append(refusal)
            except LockstepError:
                return

        await process.start(attempt())
        for refusal in refusals:
            raise refusal
        return answers[0] if answers else None

    async def send(self, message: Message) -> bool:
        """Whether a numbered message is known to be safe."""
        process, producer = self.open()
        answers: list[bool] = []

        async def attempt() -> None:
            try:
                await producer.send([message])
            except LockstepError:
                return
            answers.append(True)

        await process.start(attempt())
        return bool(answers)
