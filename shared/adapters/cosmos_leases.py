"""The container of the change feed's leases, as far as it tells who is alive."""

from collections.abc import Mapping

from shared.ports import Container, Query, StoreClock, UpsertDocument
from shared.storage.documents import written_at

# Leases are one for each feed, region and physical partition.
LEASES_MAX = 1_000


class CosmosLeases:
    """Reads when leases were renewed, and writes records beside them."""

    def __init__(self, container: Container) -> None:
        self.container = container

    async def ages(self) -> Mapping[str, float]:
        """Return the age of each document in seconds, by the store's clock."""
        clock = StoreClock()
        query = Query("SELECT c.id, c._ts FROM c", LEASES_MAX, may_be_old=True)
        documents = await self.container.find(query, clock)
        return {one["id"]: max(0.0, clock.seconds - written_at(one)) for one in documents}

    async def record(self, document_id: str, text: str | None = None) -> None:
        # As one text it is one property: this container indexes each that it is given.
        document = {"id": document_id} | ({"text": text} if text is not None else {})
        await self.container.write(document_id, [UpsertDocument(document)])

    async def read(self, document_id: str, clock: StoreClock | None = None) -> str | None:
        document = await self.container.read(document_id, document_id, may_be_old=True, clock=clock)
        return document.get("text") if document else None
