"""One container of documents: reads, queries and batches, and what their failures mean.

`retry_write` stays at its default: a hedged claim would fight itself.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosBatchOperationError, CosmosResourceNotFoundError

from shared.adapters.cosmos_account import (
    REFUSED_STATUSES,
    TOO_LARGE,
    CosmosAccount,
    reading,
    refusal,
)
from shared.domain.batch import (
    Appended,
    Create,
    Delete,
    Operation,
    Patch,
    Read,
    Replace,
    Upsert,
)
from shared.domain.errors import OutcomeUnknown, TooLarge
from shared.domain.stored_messages import Document

# For reads that may be old: they cost half of what the account's strong consistency does.
RELAXED: dict[str, Any] = {"initial_headers": {"x-ms-consistency-level": "Eventual"}}
PAGE_MAX = 100


class CosmosContainer:
    """A container whose logical partitions are sessions."""

    def __init__(self, account: CosmosAccount, database: str, name: str) -> None:
        self.account = account
        self.database = database
        self.name = name

    async def apply(self, session: str, operations: Sequence[Operation]) -> Appended:
        """CREATED for all of the operations, or the meaning of the first that was refused."""
        answers = await self.write(session, operations)
        return answers if isinstance(answers, Appended) else Appended.CREATED

    async def write(
        self, session: str, operations: Sequence[Operation]
    ) -> Sequence[Mapping[str, Any]] | Appended:
        """The answers to all of the operations, or the meaning of the first that was refused.

        Raises TooLarge, Unavailable or OutcomeUnknown.
        """
        container = await self.container()
        batch = [to_cosmos(operation) for operation in operations]
        try:
            async with self.account.writing():
                return list(await container.execute_item_batch(batch, partition_key=session))
        except CosmosBatchOperationError as error:
            return refused(operations, error)

    async def read(self, session: str, document_id: str, **options: Any) -> Document | None:
        """A document, or None where there is none."""
        container = await self.container()
        with suppress(CosmosResourceNotFoundError):
            async with reading():
                found = await container.read_item(document_id, partition_key=session, **options)
                return dict(found)
        return None

    async def query(self, query: str, *, limit: int, **options: Any) -> list[Document]:
        """The first documents that a query finds."""
        container = await self.container()
        found: list[Document] = []
        pages = container.query_items(query, max_item_count=min(limit, PAGE_MAX), **options)
        async with reading():
            async for document in pages:
                found.append(dict(document))
                if len(found) == limit:
                    break
        return found

    async def container(self) -> ContainerProxy:
        """The SDK's container, connected."""
        return await self.account.container(self.database, self.name)


@dataclass
class Answer:
    """What the store said beside its documents: the time on its own clock."""

    store_seconds: float = 0.0

    def heard(self, headers: Mapping[str, str], _: object) -> None:
        """Take the date of an answer."""
        self.store_seconds = parsedate_to_datetime(headers["Date"]).timestamp()


def to_cosmos(operation: Operation) -> tuple[Any, ...]:
    """An operation of a batch as the SDK wants it."""
    arguments: tuple[Any, ...]
    conditions: dict[str, Any] = {}
    match operation:
        case Read(document_id):
            name, arguments = "read", (document_id,)
        case Create(document):
            name, arguments = "create", (document,)
        case Upsert(document):
            name, arguments = "upsert", (document,)
        case Replace(document, version):
            name, arguments = "replace", (document["id"], document)
            conditions["if_match_etag"] = version
        case Patch(document_id, fields):
            changes = [{"op": "set", "path": path, "value": v} for path, v in fields.items()]
            name, arguments = "patch", (document_id, changes)
        case Delete(document_id, _, version):
            name, arguments = "delete", (document_id,)
            conditions |= {"if_match_etag": version} if version else {}
    return (name, arguments, conditions)


def refused(operations: Sequence[Operation], error: CosmosBatchOperationError) -> Appended:
    """What a failed batch means: the first operation that was refused says so itself."""
    status: int = error.operation_responses[error.error_index]["statusCode"]
    if status in (404, 409, 412):
        return operations[int(error.error_index)].refused
    if status == TOO_LARGE:
        raise TooLarge("Cosmos DB refused a document as too large") from error
    if status in REFUSED_STATUSES:
        raise refusal(error, status) from error
    raise OutcomeUnknown(f"Cosmos DB answered a batch with {status}") from error
