"""A Cosmos DB account and its containers: reads, queries and batches, and what failures mean.

`retry_write` stays at its default: a hedged claim would fight itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core.exceptions import AzureError
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)
from azure.identity.aio import DefaultAzureCredential

from shared.domain.errors import OutcomeUnknown, Throttled, TooLarge, Unavailable
from shared.ports import WriteResult
from shared.storage.documents import Document
from shared.storage.operations import (
    CreateDocument,
    DeleteDocument,
    Operation,
    PatchDocument,
    ReadDocument,
    ReplaceDocument,
    UpsertDocument,
)

# Throttled, busy, or not the write region: refused before anything was written.
REFUSED_STATUSES = frozenset({403, 429, 449})
TOO_LARGE = 413
THROTTLED = 429
# For reads that may be old: they cost half of what the account's strong consistency does.
RELAXED: dict[str, Any] = {"initial_headers": {"x-ms-consistency-level": "Eventual"}}
PAGE_MAX = 100

# A client asks where to write only every five minutes, unless a region tells it; a dead one does
# not. So a client that has written nothing for this long is replaced, and the new one asks.
RECONNECT_SECONDS = 15.0


class CosmosAccount:
    """The client of one account, connected on first use and shared by everything in a process.

    After a fail-over of the write region it finds the new one within about RECONNECT_SECONDS.
    """

    def __init__(
        self,
        *,
        connection_string: str | None,
        endpoint: str | None,
        client_id: str | None,
        locations: Sequence[str] = (),
    ) -> None:
        self.connection_string = connection_string
        self.endpoint = endpoint
        self.client_id = client_id
        self.locations = list(locations)
        self.client: CosmosClient | None = None
        self.credential: DefaultAzureCredential | None = None
        self.connecting = asyncio.Lock()
        self.containers: dict[tuple[str, str], ContainerProxy] = {}
        self.reconnect_seconds = RECONNECT_SECONDS
        self.failing_since: float | None = None

    async def container(self, database: str, name: str) -> ContainerProxy:
        """A container, with the client connected."""
        since = self.failing_since
        if since is not None and time.monotonic() - since > self.reconnect_seconds:
            # The client may still write to a region that is down; a new one asks where to write.
            await self.close()
        known = self.containers.get((database, name))
        if known is not None:
            return known
        async with self.connecting:
            if self.client is None:
                async with reading():
                    self.client = await self.new_client().__aenter__()
        container = self.client.get_database_client(database).get_container_client(name)
        self.containers[database, name] = container
        return container

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """Turn failed writes into Unavailable or OutcomeUnknown; 404, 409 and 412 are answers.

        It is remembered since when writes fail: reads may go on meanwhile.
        """
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
            if error.status_code == THROTTLED:
                # The region answers, so it is the right one.
                self.failing_since = None
            elif error.status_code != TOO_LARGE:
                self.failing_since = self.failing_since or time.monotonic()
            if error.status_code == TOO_LARGE:
                raise TooLarge(first_line(error)) from error
            if error.status_code in REFUSED_STATUSES:
                raise convert_refusal(error, error.status_code) from error
            raise OutcomeUnknown(f"a write to Cosmos DB failed: {first_line(error)}") from error
        except (AzureError, TimeoutError, OSError) as error:
            self.failing_since = self.failing_since or time.monotonic()
            raise OutcomeUnknown(
                f"a write to Cosmos DB got no answer: {first_line(error)}"
            ) from error
        else:
            self.failing_since = None

    def new_client(self) -> CosmosClient:
        if self.connection_string is not None:
            return CosmosClient.from_connection_string(
                self.connection_string,
                preferred_locations=self.locations,
                transport=new_transport(),
            )
        self.credential = DefaultAzureCredential(managed_identity_client_id=self.client_id)
        return CosmosClient(
            self.endpoint or "",
            credential=self.credential,
            preferred_locations=self.locations,
            transport=new_transport(),
        )

    async def close(self) -> None:
        """Disconnect; the next use connects again."""
        self.containers.clear()
        self.failing_since = None
        client, self.client = self.client, None
        credential, self.credential = self.credential, None
        if client is not None:
            with suppress(AzureError, OSError):
                await client.close()
        if credential is not None:
            await credential.close()


class CosmosContainer:
    """A container whose logical partitions are sessions."""

    def __init__(self, account: CosmosAccount, database: str, name: str) -> None:
        self.account = account
        self.database = database
        self.name = name

    async def write(
        self, session: str, operations: Sequence[Operation]
    ) -> tuple[WriteResult, Sequence[Mapping[str, Any]]]:
        """CREATED and the answers to all operations, or the meaning of the first that was refused.

        Raises TooLarge, Unavailable or OutcomeUnknown.
        """
        container = await self.account.container(self.database, self.name)
        batch = [encode_operation(operation) for operation in operations]
        try:
            async with self.account.writing():
                answers = await container.execute_item_batch(batch, partition_key=session)
        except CosmosBatchOperationError as error:
            return explain_batch(operations, error), ()
        return WriteResult.CREATED, list(answers)

    async def read(self, session: str, document_id: str, **options: Any) -> Document | None:
        """A document, or None where there is none."""
        container = await self.account.container(self.database, self.name)
        with suppress(CosmosResourceNotFoundError):
            async with reading():
                found = await container.read_item(document_id, partition_key=session, **options)
                return dict(found)
        return None

    async def query(self, query: str, *, limit: int, **options: Any) -> list[Document]:
        """The first documents that a query finds."""
        container = await self.account.container(self.database, self.name)
        found: list[Document] = []
        pages = container.query_items(query, max_item_count=min(limit, PAGE_MAX), **options)
        async with reading():
            async for document in pages:
                found.append(dict(document))
                if len(found) == limit:
                    break
        return found


@dataclass
class ResponseClock:
    """The time on the store's own clock, taken from the headers of its response."""

    seconds: float = 0.0

    def read(self, headers: Mapping[str, str], _: object) -> None:
        """Take the date of a response; this is the SDK's `response_hook`."""
        self.seconds = parsedate_to_datetime(headers["Date"]).timestamp()


def new_transport() -> AioHttpTransport:
    """A transport that does not search the environment for a proxy before each request.

    That search costs two trips to a thread, a quarter of what a request costs this process.
    """
    return AioHttpTransport(use_env_settings=False)


@asynccontextmanager
async def reading() -> AsyncIterator[None]:
    """Turn failed reads into Unavailable; 404 passes, it is an answer."""
    try:
        yield
    except CosmosResourceNotFoundError:
        raise
    except CosmosHttpResponseError as error:
        raise convert_refusal(error, error.status_code) from error
    except (AzureError, TimeoutError, OSError) as error:
        raise Unavailable(f"Cosmos DB cannot be reached: {first_line(error)}") from error


def convert_refusal(error: AzureError, status: int | None) -> Unavailable:
    """A refusal as Throttled or Unavailable, with the wait that the store asks for."""
    reason = f"Cosmos DB refused: {first_line(error)}"
    if status != THROTTLED:
        return Unavailable(reason)
    wait = (getattr(error, "headers", None) or {}).get("x-ms-retry-after-ms")
    return Throttled(reason, float(wait) / 1000 if wait else None)


def first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def encode_operation(operation: Operation) -> tuple[Any, ...]:
    """An operation of a batch as the SDK wants it."""
    arguments: tuple[Any, ...]
    conditions: dict[str, Any] = {}
    match operation:
        case ReadDocument(document_id):
            name, arguments = "read", (document_id,)
        case CreateDocument(document):
            name, arguments = "create", (document,)
        case UpsertDocument(document):
            name, arguments = "upsert", (document,)
        case ReplaceDocument(document, version):
            name, arguments = "replace", (document["id"], document)
            conditions["if_match_etag"] = version
        case PatchDocument(document_id, fields):
            changes = [{"op": "set", "path": path, "value": v} for path, v in fields.items()]
            name, arguments = "patch", (document_id, changes)
        case DeleteDocument(document_id, _, version):
            name, arguments = "delete", (document_id,)
            conditions |= {"if_match_etag": version} if version else {}
    return (name, arguments, conditions)


def explain_batch(operations: Sequence[Operation], error: CosmosBatchOperationError) -> WriteResult:
    """What a failed batch means: the first operation that was refused says so itself."""
    status: int = error.operation_responses[error.error_index]["statusCode"]
    if status in (404, 409, 412):
        return operations[int(error.error_index)].refused
    if status == TOO_LARGE:
        raise TooLarge("Cosmos DB refused a document as too large") from error
    if status in REFUSED_STATUSES:
        raise convert_refusal(error, status) from error
    raise OutcomeUnknown(f"Cosmos DB answered a batch with {status}") from error
