"""An account in memory that keeps the steps of manifests, and whose calls go wrong as planned."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from shared.ports import Container, Document, Operation, Query, WriteResult
from shared.testkit.injected_faults import FaultPlan
from shared.testkit.memory import MemoryContainer
from shared.testkit.memory_store import MemoryStore, VirtualClock
from spark.job.steps import AccountSteps

ROOT = "abfss://lake@account/fed"
ROUND_TRIP_SECONDS = 0.13


class FaultyContainer(MemoryContainer):
    """A container whose calls go wrong as planned, and take as long as those to a far account."""

    def __init__(self, store: MemoryStore, faults: FaultPlan) -> None:
        super().__init__(store)
        self.faults = faults

    async def read(self, *arguments: Any, **options: Any) -> Document | None:
        with self.faults.calling("read"):
            return await super().read(*arguments, **options)

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        self.store.clock.seconds += ROUND_TRIP_SECONDS
        with self.faults.calling("write"):
            return await super().write(session, operations)

    async def find(self, query: Query, clock: Any = None) -> list[Document]:
        with self.faults.calling("find"):
            return await super().find(query, clock)


@dataclass
class Account:
    """An account in memory, as any number of feeds reach it."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    faults: FaultPlan = field(default_factory=FaultPlan)
    address: str = "an-account/lockstep/journal"
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(self.clock)

    def open_steps(self, name: str = ROOT, root: str = ROOT) -> AccountSteps:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Container]:
            yield FaultyContainer(self.store, self.faults)

        return AccountSteps(opened, self.address, name, root, self.clock)

    @property
    def documents(self) -> dict[str, Document]:
        (partition,) = self.store.partitions.values()
        return dict(partition)
