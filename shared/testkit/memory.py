"""The in-memory twin of the store, with the same promises and the same failures.

For unit tests, the simulation and a team's handler tests. Time passes only when somebody sleeps.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from shared.domain.journal import Entry
from shared.ports import Document, Operation, Query, StoreClock, WriteResult
from shared.storage.entries import (
    decode_entry,
    lacks_state,
    position_id,
    state_id,
    with_state,
)
from shared.storage.journal import Journal
from shared.testkit.injected_faults import FaultPlan
from shared.testkit.intercepted import InterceptedJournal
from shared.testkit.memory_store import MemoryStore, VirtualClock


class MemoryContainer:
    """See ports.Container: documents in a dictionary, in stored form. It never waits."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def read(
        self,
        session: str,
        document_id: str,
        *,
        may_be_old: bool = False,  # noqa: ARG002 - it never is
        clock: StoreClock | None = None,
    ) -> Document | None:
        found = self.store.read(session, document_id)
        # As in the real store, whose SDK raises for a missing document and tells no date of it.
        if found is not None:
            self.tell_time(clock)
        return found

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        result = self.store.apply(session, operations)
        return result, str(self.store.versions) if result is WriteResult.CREATED else ""

    async def find(self, query: Query, clock: StoreClock | None = None) -> list[Document]:
        self.tell_time(clock)
        return self.store.find(query)

    async def look(self) -> None:
        """See Container.look: it can always be read."""

    def tell_time(self, clock: StoreClock | None) -> None:
        if clock is not None:
            clock.seconds = self.store.clock.now()


class MemoryJournal(InterceptedJournal):
    """A Journal over a container in memory, whose calls go wrong as planned."""

    def __init__(
        self,
        clock: VirtualClock,
        fault_plan: FaultPlan | None = None,
        store: MemoryStore | None = None,
    ) -> None:
        self.clock = clock
        self.fault_plan = fault_plan or FaultPlan()
        self.store = store or MemoryStore(clock)
        self.partitions = self.store.partitions
        super().__init__(Journal(MemoryContainer(self.store)))

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """Make the call, unless it goes wrong as planned."""
        with self.fault_plan.calling(name):
            return await call()

    def newest(self, session: str) -> Entry | None:
        """Return the newest entry of a session, for tests that inspect the twin."""
        document = self.store.newest(session)
        return decode_entry(document) if document else None

    def entry_at(self, session: str, position: int) -> Entry | None:
        """Return the entry at a position with its state, for tests that inspect the twin."""
        document = self.store.read(session, position_id(position))
        if document and lacks_state(document):
            document = with_state(document, self.store.read(session, state_id(position)))
        return decode_entry(document) if document else None
