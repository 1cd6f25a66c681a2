"""The record of which journal the messages of a queue go to, beside the leases of the change feed.

It lies where applications with different journals meet: those that share a database by mistake.
"""

from dataclasses import dataclass

from shared.domain.errors import Misconfigured
from shared.ports import Container, CreateDocument, WriteResult


@dataclass(frozen=True, slots=True)
class KeptQueue:
    """The queue that an app reads, and the container of its journals.

    `key` stands for the queue in all its namespaces: apps that read it have the same one.
    """

    container: Container
    key: str
    journal: str

    async def require_ours(self, *, records: bool) -> None:
        """Raise Misconfigured where messages of the queue go to another journal; one read.

        With `records` the first app of all says where they go.
        """
        found = await self.container.read(self.key, self.key)
        if found is None and records:
            document = {"id": self.key, "journal": self.journal}
            await self.container.write(self.key, [CreateDocument(document, WriteResult.TAKEN)])
            found = await self.container.read(self.key, self.key)
        if found is not None and found["journal"] != self.journal:
            raise Misconfigured(
                f"LOCKSTEP_JOURNAL is {self.journal!r}, but another app that reads LOCKSTEP_QUEUE"
                f" keeps {found['journal']!r}: name the same journal in every region, or another"
                f" queue; where the move is meant, delete document {self.key!r} of LOCKSTEP_LEASES"
            )
