"""A journal in a local account whose clock stands still, and the engine that writes it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

from azure.cosmos import ContainerProxy, CosmosClient

from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from shared.domain.handler import Handlers
from shared.domain.message import Message
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from tests import sized_outputs
from tests.world import LAG_SECONDS, POLICY, World, handlers, take

SECTION = {
    "Database": "lockstep",
    "Containers": [{"Name": "journal", "PartitionKey": "/session", "Partitions": 2}],
}
BEGIN = 1_780_000_000.0


class Stopped:
    """The engine writes to memory, and what changed there is brought to the account."""

    account: Cosmos
    journal: ContainerProxy

    def __init__(self) -> None:
        self.seconds = BEGIN
        both = Handlers.joined([handlers, sized_outputs.handlers])
        self.world = World(policy=replace(POLICY, keeps_inputs=True), handlers=both)
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}

    @property
    def settings(self) -> dict[str, str]:
        """The app settings that name the journal."""
        return {
            "Cosmos": self.account.connection_string,
            "LOCKSTEP_DATABASE": "lockstep",
            "LOCKSTEP_JOURNAL": "journal",
        }

    def take(self, *messages: Message) -> None:
        """The engine processes messages; the account has what came of it a second later."""
        asyncio.run(self._take(messages))
        self.store()

    async def _take(self, messages: tuple[Message, ...]) -> None:
        await take(self.world.east, *messages)

    def resolve(self, session: str, action: ResolutionAction) -> None:
        """A person decides; the account has it a second later."""
        asyncio.run(self._resolve(session, action))
        self.store()

    async def _resolve(self, session: str, action: ResolutionAction) -> None:
        decided = ResolutionRequest(action, "Ada", "asked to be forgotten")
        await self.world.east.resolver.resolve(session, decided)

    def sweep(self) -> None:
        """What a region missed is sent, and its entries say so."""
        self.world.clock.seconds += LAG_SECONDS
        asyncio.run(self.world.west.recovery.sweep())
        self.store()

    def store(self) -> None:
        """Bring to the account what changed in the memory, and remove what went."""
        self.seconds += 1
        now = {
            (session, name): deepcopy({k: document[k] for k in document if not k.startswith("_")})
            for session, documents in self.world.journal.partitions.items()
            for name, document in documents.items()
        }
        for place, document in now.items():
            if self.stored.get(place) != document:
                self.journal.upsert_item(document)
        for session, name in self.stored.keys() - now.keys():
            self.journal.delete_item(name, session)
        self.stored = now

    def expected(self) -> dict[tuple[str, int], list[dict[str, Any]]]:
        """The entries as they are stored, with the states that lie beside them."""
        found = {}
        for (session, name), document in self.stored.items():
            if document["kind"] == "entry":
                state = self.stored.get((session, f"state-{name}"))
                whole = {"state": state["whole"]} if state else {}
                found[session, int(name)] = [document | whole]
        return found


@contextmanager
def stopped_journal() -> Iterator[Stopped]:
    """An empty journal at one moment."""
    stopped = Stopped()
    with Cosmos(CosmosConfig.parse(SECTION), clock=lambda: stopped.seconds) as account:
        stopped.account = account
        with CosmosClient(account.endpoint, account.key) as client:
            database = client.get_database_client("lockstep")
            stopped.journal = database.get_container_client("journal")
            yield stopped
