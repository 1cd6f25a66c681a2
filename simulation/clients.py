"""Everybody who uses the engine: senders of messages, clients of sagas, and an operator."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from functions.saga_instances import ensure, left_to_the_feed, wake
from shared.domain.errors import LockstepError, ProducerDisconnected
from shared.domain.message import Message
from shared.domain.producer import Draft, ProducerOptions
from shared.domain.saga_walk import Started
from shared.usecases.publish import Producer
from shared.usecases.resolve import Action, Decision
from shared.usecases.saga_book import Heard, SagaBook, Told
from simulation.host import QUEUE, HubClient
from simulation.process import Process
from simulation.virtual_time import now
from simulation.workload import Line, Series, Workload

if TYPE_CHECKING:
    from simulation.world import World


LOOK_SECONDS = 10.0
# An outage is no reason to skip a message, so every fault is run again this often.
RETRIES = 2
REGION = "east"

type Correct = Callable[[Message], bytes | None]


def uncorrected(_: Message) -> bytes | None:
    """Nothing is worth correcting."""
    return None


@dataclass
class Operator:
    """Resolves what stops a session. `corrections` are the bodies given, by session and id."""

    world: "World"
    correct: Correct
    corrections: dict[tuple[str, str], bytes] = field(default_factory=dict)
    looks: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def work(self) -> None:
        """Look at all halted sessions now and then."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            process = self.world.new_process("operator", REGION)
            for session, message, at in self.halted():
                await process.start(self.resolve(process, session, self.decide(message, at)))

    def halted(self) -> list[tuple[str, Message, int]]:
        """Sessions that wait for a person, the messages that stop them, and where each failed."""
        journal = self.world.journal
        heads = [journal.newest(session) for session in list(journal.partitions)]
        found: list[tuple[str, Message, int]] = []
        for head in heads:
            if head is not None and head.halt is not None:
                fault = journal.entry_at(head.session, head.halt.at)
                if fault is not None and fault.message is not None:
                    found.append((head.session, fault.message, head.halt.at))
        return found

    def decide(self, message: Message, at: int) -> Decision:
        """Try again at first; then correct what can be corrected, and let the rest go."""
        key = (message.session, message.id)
        self.looks[key] += 1
        if self.looks[key] <= RETRIES:
            return Decision(Action.RETRY, "operator", "perhaps it was the weather", at=at)
        body = self.correct(message)
        if body is None:
            return Decision(Action.SKIP, "operator", "it cannot be helped", at=at)
        self.corrections[key] = body
        return Decision(Action.EDIT, "operator", "it was wrong", body, at)

    async def resolve(self, process: Process, session: str, decision: Decision) -> None:
        """Resolve one fault, or leave it for the next time."""
        try:
            await self.world.services(process).resolver.resolve(session, decision)
        except LockstepError:
            return


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
                delay = delivery.delay_seconds(region, message.session)
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


AGAIN_SECONDS_MAX = 2.0


@dataclass(frozen=True, slots=True)
class Begin:
    """Start a saga of a kind with a body."""

    kind: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell it of an event."""

    event: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Make it turn back."""


@dataclass(frozen=True, slots=True)
class Errand:
    """What is wanted of the saga with a key, from a virtual second on."""

    at: float
    region: str
    key: str
    wish: Begin | Tell | Cancel


@dataclass
class Errands:
    """Everybody with an errand. `told` is what each was told in the end."""

    world: "World"
    told: list[tuple[Errand, Told]] = field(default_factory=list)

    async def run(self, errands: Sequence[Errand]) -> None:
        """Run all errands side by side, each again until there is an answer."""
        await asyncio.gather(*map(self.insist, errands))

    async def insist(self, errand: Errand) -> None:
        """Run one errand until there is an answer."""
        await asyncio.sleep(errand.at)
        door = Door(self.world, errand)
        while (told := await door.knock()) is None:
            await self.world.senders.think(AGAIN_SECONDS_MAX)
        self.told.append((errand, told))


@dataclass
class Door:
    """Where a region takes an errand: HTTP, in a process that is begun again when it dies."""

    world: "World"
    errand: Errand
    process: Process | None = None

    async def knock(self) -> Told | None:
        """Run the errand once, as the HTTP functions do; None where it is to be run again."""
        if self.process is None or self.process.is_dead:
            self.process = self.world.new_process(f"door {self.errand.region}", self.errand.region)
        book = SagaBook.of(self.world.services(self.process))
        client = HubClient(self.process, self.world.hubs[self.errand.region])
        answers: list[Told] = []

        async def attempt() -> None:
            try:
                answers.append(await self.ask(book, client))
            except LockstepError:
                return

        await self.process.start(attempt())
        return answers[0] if answers else None

    async def ask(self, book: SagaBook, client: HubClient) -> Told:
        """Write it into the journal, and tell the task hub, if it can be reached."""
        key = self.errand.key
        match self.errand.wish:
            case Begin(kind, body):
                told = await book.start(key, kind, body)
                found = await book.look(key) if told.heard is Heard.TAKEN else None
                if isinstance(found, Started):
                    await left_to_the_feed(key, ensure(client, found, 0.0))
                return told
            case Tell(event):
                told = await book.hear(key, event)
            case Cancel():
                told = await book.cancel(key)
        await left_to_the_feed(key, wake(client, key))
        return told
