"""What people want of sagas: to start one, tell it something, cancel it, somewhere, some time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from functions.saga_instances import ensure_instance, notify_instance, try_now
from shared.domain.errors import LockstepError
from shared.domain.saga.walk import StartedSaga
from shared.engine.sagas.sagas import SagaResponse, Sagas
from simulation.process import Process
from simulation.saga_worker import HubClient

if TYPE_CHECKING:
    from simulation.world import World

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
    told: list[tuple[Errand, SagaResponse]] = field(default_factory=list)

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

    async def knock(self) -> SagaResponse | None:
        """Run the errand once, as the HTTP functions do; None where it is to be run again."""
        if self.process is None or self.process.is_dead:
            self.process = self.world.new_process(f"door {self.errand.region}", self.errand.region)
        book = Sagas(self.world.services(self.process).commands)
        client = HubClient(self.process, self.world.hubs[self.errand.region])
        answers: list[SagaResponse] = []

        async def attempt() -> None:
            try:
                answers.append(await self.ask(book, client))
            except LockstepError:
                return

        await self.process.start(attempt())
        return answers[0] if answers else None

    async def ask(self, book: Sagas, client: HubClient) -> SagaResponse:
        """Write it into the journal, and tell the task hub, if it can be reached."""
        key = self.errand.key
        match self.errand.wish:
            case Begin(kind, body):
                told = await book.start(key, kind, body)
                found = await book.load(key) if told.is_accepted else None
                if isinstance(found, StartedSaga):
                    await try_now(key, ensure_instance(client, found, 0.0))
                return told
            case Tell(event):
                told = await book.add_event(key, event)
            case Cancel():
                told = await book.cancel(key)
        await try_now(key, notify_instance(client, key))
        return told
