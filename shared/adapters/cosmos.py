"""The journal over azure-cosmos: one container, one logical partition per session.

The SDK retries writes by itself, so a conflict may be our own earlier success; the use case tells
them apart by attempt. `retry_write` stays at its default: a hedged claim would fight itself.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from azure.identity.aio import DefaultAzureCredential

from shared.domain.batch import Appended, Create, Delete, Operation, Read, append_operations
from shared.domain.documents import (
    Document,
    entry_from,
    ledger_document,
    ledger_from,
    ledger_id,
    message_from,
    owed_document,
    owing_from,
    parked_id,
    position_id,
    with_delivered,
)
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox, Owing
from shared.domain.producer import Ledger
from shared.ports import StoredLedger

# Entry ids are digits and ':' follows '9', so this range holds entries and nothing else.
HEAD_QUERY = "SELECT TOP 1 * FROM c WHERE c.id >= '0' AND c.id < ':' ORDER BY c.id DESC"
WAITING_QUERY = "SELECT c.session, c._ts FROM c WHERE c.owing = true ORDER BY c._ts"
OWING_QUERY = "SELECT * FROM c WHERE c.owing = true ORDER BY c.id"
FAULTED_QUERY = "SELECT c.session FROM c WHERE c.faulted = true"
PAGE_MAX = 100
# A session's debts are paid in order, so a longer list would only be read again.
OWING_MAX = 1_000

# Throttled, busy, or not the write region: refused before anything was written.
REFUSED_STATUSES = frozenset({403, 429, 449})


class CosmosAccount:
    """The client of one account, connected on first use and shared by everything in a process."""

    def __init__(
        self,
        *,
        connection_string: str | None,
        endpoint: str | None,
        client_id: str | None,
    ) -> None:
        self.connection_string = connection_string
        self.endpoint = endpoint
        self.client_id = client_id
        self.client: CosmosClient | None = None
        self.credential: DefaultAzureCredential | None = None
        self.connecting = asyncio.Lock()

    async def container(self, database: str, name: str) -> ContainerProxy:
        """A container, with the client connected."""
        async with self.connecting:
            if self.client is None:
                async with reading():
                    self.client = await self.new_client().__aenter__()
        return self.client.get_database_client(database).get_container_client(name)

    def new_client(self) -> CosmosClient:
        """A client that is not connected yet."""
        if self.connection_string is not None:
            return CosmosClient.from_connection_string(self.connection_string)
        self.credential = DefaultAzureCredential(managed_identity_client_id=self.client_id)
        return CosmosClient(self.endpoint or "", credential=self.credential)

    async def close(self) -> None:
        """Disconnect; the next use connects again."""
        client, self.client = self.client, None
        credential, self.credential = self.credential, None
        if client is not None:
            await client.close()
        if credential is not None:
            await credential.close()


class CosmosJournal:
    """See ports.Journal."""

    def __init__(self, account: CosmosAccount, database: str, container: str) -> None:
        self.account = account
        self.database = database
        self.container_name = container

    async def head(self, session: str) -> Entry | None:
        """See Journal.head: one query in one partition."""
        documents = await self.query(HEAD_QUERY, limit=1, answer=Answer(), partition_key=session)
        return entry_from(documents[0]) if documents else None

    async def entry(self, session: str, position: int) -> Entry | None:
        """See Journal.entry: one point read."""
        document = await self.read(session, position_id(position))
        return entry_from(document) if document else None

    async def append(self, entry: Entry) -> Appended:
        """See Journal.append: one transactional batch."""
        operations = append_operations(entry)
        container = await self.container()
        try:
            async with writing():
                await container.execute_item_batch(
                    [to_cosmos(operation) for operation in operations], partition_key=entry.session
                )
        except CosmosBatchOperationError as error:
            return refused_append(operations, error)
        return Appended.CREATED

    async def parked(self, session: str, number: Number) -> Message | None:
        """See Journal.parked: one point read."""
        document = await self.read(session, parked_id(number))
        return message_from(document["message"]) if document else None

    async def sessions_faulted(self, *, limit: int) -> Sequence[str]:
        """See Journal.sessions_faulted: an indexed query."""
        found = await self.query(FAULTED_QUERY, limit=limit, answer=Answer())
        return list(dict.fromkeys(document["session"] for document in found))

    async def sessions_owing(self, *, older_than_seconds: float, limit: int) -> Sequence[str]:
        """See Journal.sessions_owing: an indexed query, aged by the date of its answer."""
        answer = Answer()
        found = await self.query(WAITING_QUERY, limit=limit, answer=answer)
        before = answer.store_seconds - older_than_seconds
        return list(dict.fromkeys(d["session"] for d in found if d["_ts"] <= before))

    async def owing_of(self, session: str) -> Sequence[Owing]:
        """See Journal.owing_of: an indexed query in one partition."""
        found = await self.query(
            OWING_QUERY, limit=OWING_MAX, answer=Answer(), partition_key=session
        )
        return [owing for document in found if (owing := owing_from(document))]

    async def owe(self, session: str, outbox: Outbox) -> None:
        """See Journal.owe: one create; a conflict means that it is owed already."""
        container = await self.container()
        with suppress(CosmosResourceExistsError):
            async with writing():
                await container.create_item(owed_document(session, outbox))

    async def acknowledge(self, session: str, document_id: str, delivered: Sequence[str]) -> None:
        """See Journal.acknowledge: read, then replace or delete if nobody else did."""
        while (document := await self.read(session, document_id)) is not None:
            with suppress(CosmosAccessConditionFailedError):
                await self.write_back(with_delivered(document, delivered))
                return

    async def write_back(self, document: Document) -> None:
        """Store what is left of a read document; a producer's debt vanishes when it is paid."""
        container = await self.container()
        session, document_id = document["session"], document["id"]
        unchanged = {"etag": document["_etag"], "match_condition": MatchConditions.IfNotModified}
        with suppress(CosmosResourceNotFoundError):
            async with writing():
                if document["kind"] == "owed" and not document.get("owing"):
                    await container.delete_item(document_id, partition_key=session, **unchanged)
                else:
                    await container.replace_item(document_id, document, **unchanged)

    async def ledger(self, session: str, group: str) -> StoredLedger | None:
        """See Journal.ledger: one point read."""
        document = await self.read(session, ledger_id(group))
        return StoredLedger(ledger_from(document), document["_etag"]) if document else None

    async def save_ledger(self, session: str, ledger: Ledger, version: str | None) -> bool:
        """See Journal.save_ledger: one create, or one replace If-Match."""
        container = await self.container()
        document = ledger_document(session, ledger)
        try:
            async with writing():
                if version is None:
                    await container.create_item(document)
                else:
                    await container.replace_item(
                        document["id"],
                        document,
                        etag=version,
                        match_condition=MatchConditions.IfNotModified,
                    )
        except (CosmosResourceExistsError, CosmosAccessConditionFailedError):
            return False
        return True

    async def read(self, session: str, document_id: str) -> Document | None:
        """A document, or None where there is none."""
        container = await self.container()
        try:
            async with reading():
                return dict(await container.read_item(document_id, partition_key=session))
        except CosmosResourceNotFoundError:
            return None

    async def query(
        self, query: str, *, limit: int, answer: "Answer", **options: Any
    ) -> list[Document]:
        """The first documents that a query finds."""
        container = await self.container()
        found: list[Document] = []
        pages = container.query_items(
            query, max_item_count=min(limit, PAGE_MAX), response_hook=answer.heard, **options
        )
        async with reading():
            async for document in pages:
                found.append(dict(document))
                if len(found) == limit:
                    break
        return found

    async def container(self) -> ContainerProxy:
        """The journal's container."""
        return await self.account.container(self.database, self.container_name)


@dataclass
class Answer:
    """What the store said beside its documents: the time on its own clock."""

    store_seconds: float = 0.0

    def heard(self, headers: Mapping[str, str], _: object) -> None:
        """Take the date of an answer."""
        self.store_seconds = parsedate_to_datetime(headers["Date"]).timestamp()


def to_cosmos(operation: Operation) -> tuple[str, tuple[Any, ...]]:
    """An operation of a batch as the SDK wants it."""
    match operation:
        case Read(document_id):
            return ("read", (document_id,))
        case Create(document):
            return ("create", (document,))
        case Delete(document_id):
            return ("delete", (document_id,))


def refused_append(operations: Sequence[Operation], error: CosmosBatchOperationError) -> Appended:
    """What a failed batch means: the first operation that was refused says so itself."""
    status: int = error.operation_responses[error.error_index]["statusCode"]
    if status in (404, 409):
        return operations[int(error.error_index)].refused
    if status in REFUSED_STATUSES:
        raise Unavailable(f"Cosmos DB refused an append: {status}") from error
    raise OutcomeUnknown(f"Cosmos DB answered an append with {status}") from error


@asynccontextmanager
async def reading() -> AsyncIterator[None]:
    """Turn failed reads into Unavailable; 404 passes, it is an answer."""
    try:
        yield
    except CosmosResourceNotFoundError:
        raise
    except (AzureError, TimeoutError, OSError) as error:
        raise Unavailable(f"Cosmos DB cannot be read: {first_line(error)}") from error


@asynccontextmanager
async def writing() -> AsyncIterator[None]:
    """Turn failed writes into Unavailable or OutcomeUnknown; 404, 409 and 412 are answers."""
    try:
        yield
    except (
        CosmosAccessConditionFailedError,
        CosmosBatchOperationError,
        CosmosResourceExistsError,
        CosmosResourceNotFoundError,
    ):
        raise
    except CosmosHttpResponseError as error:
        if error.status_code in REFUSED_STATUSES:
            raise Unavailable(f"Cosmos DB refused a write: {first_line(error)}") from error
        raise OutcomeUnknown(f"a write to Cosmos DB failed: {first_line(error)}") from error
    except (AzureError, TimeoutError, OSError) as error:
        raise OutcomeUnknown(f"a write to Cosmos DB got no answer: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """An SDK error without its page of headers."""
    return (str(error).splitlines() or [type(error).__name__])[0]
