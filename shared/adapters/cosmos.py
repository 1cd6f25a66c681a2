"""A Cosmos DB account and its containers: reads, queries and batches, and what failures mean.

`retry_write` stays at its default: a hedged claim would fight itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceNotFoundError,
)
from azure.identity.aio import DefaultAzureCredential

from shared.domain.errors import LockstepError, Unavailable
from shared.domain.failures import (
    CREDENTIAL,
    MISSING,
    STORE,
    THROTTLED,
    Failure,
    FailureClass,
    classify,
    make_error,
)
from shared.domain.measures import REQUEST_UNITS
from shared.domain.spending import CURRENT
from shared.ports import (
    CreateDocument,
    DeleteDocument,
    Document,
    Operation,
    PatchDocument,
    Query,
    ReadDocument,
    ReplaceDocument,
    StoreClock,
    Telemetry,
    UpsertDocument,
    WriteResult,
)

# For reads that may be old: they cost half of what the account's strong consistency does.
RELAXED = {"x-ms-consistency-level": "Eventual"}
PAGE_MAX = 100

# A client asks where to write only every five minutes, unless a region tells it; a dead one does
# not. So a client that has written nothing for this long is replaced, and the new one asks.
RECONNECT_SECONDS = 15.0


@dataclass(eq=False, repr=False)
class CosmosAccount:
    """The client of one account, connected on first use and shared by everything in a process.

    After a fail-over of the write region it finds the new one within about RECONNECT_SECONDS.
    """

    connection_string: str | None
    endpoint: str | None
    client_id: str | None
    locations: Sequence[str] = ()
    telemetry: Telemetry | None = None

    def __post_init__(self) -> None:
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
                await self.connect()
        if self.client is None:
            raise Unavailable("the client was closed while it connected")
        container = self.client.get_database_client(database).get_container_client(name)
        self.containers[database, name] = container
        return container

    async def connect(self) -> None:
        """Ask the account where to read and write. Raises Unavailable, and Misconfigured."""
        async with reading(), AsyncExitStack() as opened:
            try:
                client = self.new_client()
                opened.push_async_callback(client.close)
                await client.__aenter__()
            except ValueError as error:
                # What a setting holds is no connection string, or no key.
                raise make_error(Failure(STORE, CREDENTIAL), first_line(error)) from error
            opened.pop_all()
            self.client = client

    def weigh_failed_write(self, error: Exception, tries: "Tries") -> LockstepError | None:
        """The engine's error for a failed write, None for an answer such as 409.

        It is remembered since when writes get no answer: reads may go on meanwhile.
        """
        failure = tries.weigh(read_failure(error, is_write=True))
        failure_class = classify(failure).failure_class
        if failure_class is FailureClass.ANSWER:
            return None
        if failure_class in (FailureClass.UNKNOWN, FailureClass.TRANSIENT):
            # A region that is throttled answers, so it is the right one.
            is_throttled = failure.code == THROTTLED
            self.failing_since = None if is_throttled else self.failing_since or time.monotonic()
        return convert(failure, error)

    def new_client(self) -> CosmosClient:
        # Left to itself, the transport searches the environment for a proxy before each request.
        # That costs two trips to a thread, a quarter of what a request costs this process.
        transport = MeasuredTransport(self.telemetry, use_env_settings=False)
        options: dict[str, Any] = {"transport": transport, "preferred_locations": [*self.locations]}
        if self.connection_string is not None:
            return CosmosClient.from_connection_string(self.connection_string, **options)
        self.credential = DefaultAzureCredential(managed_identity_client_id=self.client_id)
        return CosmosClient(self.endpoint or "", credential=self.credential, **options)

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
    """See ports.Container: one whose logical partitions are sessions."""

    def __init__(self, account: CosmosAccount, database: str, name: str) -> None:
        self.account = account
        self.database = database
        self.name = name

    async def read(
        self,
        session: str,
        document_id: str,
        *,
        may_be_old: bool = False,
        clock: StoreClock | None = None,
    ) -> Document | None:
        """See Container.read: one point read."""
        container = await self.account.container(self.database, self.name)
        options = options_of(may_be_old=may_be_old, clock=clock)
        with suppress(CosmosResourceNotFoundError):
            async with reading():
                found = await container.read_item(document_id, partition_key=session, **options)
                return dict(found)
        return None

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        """See Container.write: one transactional batch, which the SDK may try again by itself."""
        container = await self.account.container(self.database, self.name)
        batch = [encode_operation(operation) for operation in operations]
        tries = Tries()
        try:
            answers = await container.execute_item_batch(
                batch,
                partition_key=session,
                raw_request_hook=tries.requests.append,
                raw_response_hook=tries.responses.append,
            )
        except (AzureError, TimeoutError, OSError) as error:
            failure = self.account.weigh_failed_write(error, tries)
            if failure is not None:
                raise failure from error
            if not isinstance(error, CosmosBatchOperationError):
                raise
            # The first operation that was refused says what that means.
            return operations[int(error.error_index)].refused, ""
        self.account.failing_since = None
        return WriteResult.CREATED, str(answers[-1].get("eTag", ""))

    async def find(self, query: Query, clock: StoreClock | None = None) -> list[Document]:
        """See Container.find: pages, each of which dates the clock anew."""
        container = await self.account.container(self.database, self.name)
        options = options_of(may_be_old=query.may_be_old, clock=clock)
        if query.session is not None:
            options["partition_key"] = query.session
        if query.parameters:
            named = query.parameters.items()
            options["parameters"] = [{"name": name, "value": value} for name, value in named]
        options["max_item_count"] = min(query.limit, PAGE_MAX)
        found: list[Document] = []
        async with reading():
            async for document in container.query_items(query.sql, **options):
                if query.is_enough is not None and query.is_enough(found, document):
                    break
                found.append(dict(document))
                if len(found) == query.limit:
                    break
        return found

    async def look(self) -> None:
        """See Container.look: a query in a partition that holds nothing."""
        await self.find(Query("SELECT TOP 1 c.id FROM c", 1, session="look"))


def options_of(*, may_be_old: bool, clock: StoreClock | None) -> dict[str, Any]:
    """Return what the SDK is told of a read beside what is read."""
    options: dict[str, Any] = {}
    if may_be_old:
        options["initial_headers"] = RELAXED
    if clock is not None:

        def take_date(headers: Mapping[str, str], _: object) -> None:
            clock.seconds = parsedate_to_datetime(headers["Date"]).timestamp()

        options["response_hook"] = take_date
    return options


@dataclass
class Tries:
    """The tries of one write, as they were sent and answered: the SDK repeats some by itself."""

    requests: list[Any] = field(default_factory=list)
    responses: list[Any] = field(default_factory=list)

    def weigh(self, failure: Failure) -> Failure:
        """The last try's failure, or none that says anything where an earlier one may have worked.

        A write that got a 503 is sent again. If that is refused, the first try may have worked.
        """
        nothing_happened = (FailureClass.TRANSIENT, FailureClass.DESTINATION)
        if classify(failure).failure_class not in nothing_happened:
            return failure
        answers = [Failure(STORE, one.http_response.status_code) for one in self.responses]
        is_doubtful = len(self.responses) < len(self.requests) or any(
            classify(answer).failure_class is FailureClass.UNKNOWN for answer in answers
        )
        return Failure(STORE) if is_doubtful else failure


class MeasuredTransport(AioHttpTransport):  # type: ignore[misc] # its types are its own
    """A transport that counts the request units of every response: all of them pass here."""

    def __init__(self, telemetry: Telemetry | None, **options: Any) -> None:
        super().__init__(**options)
        self.telemetry = telemetry

    async def send(self, request: Any, **options: Any) -> Any:
        """Send a request, and count what the store says that it cost."""
        response: Any = await super().send(request, **options)
        charge = float(response.headers.get("x-ms-request-charge") or 0)
        spending = CURRENT.get()
        if spending is not None:
            spending.request_units += charge
        if charge and self.telemetry is not None:
            self.telemetry.add(REQUEST_UNITS, charge, operation=name_operation(request))
        return response


def name_operation(request: Any) -> str:
    """Return a word for what a request to the store does."""
    if request.headers.get("x-ms-cosmos-is-batch-request"):
        return "batch"
    if request.headers.get("x-ms-documentdb-isquery"):
        return "query"
    return "read" if request.method == "GET" else "other"


@asynccontextmanager
async def reading() -> AsyncIterator[None]:
    """Turn failed reads into errors of the engine's; that there is no such document passes."""
    try:
        yield
    except (AzureError, TimeoutError, OSError) as error:
        failure = read_failure(error, is_write=False)
        if classify(failure).failure_class is FailureClass.ANSWER:
            raise
        raise convert(failure, error) from error


def read_failure(error: BaseException, *, is_write: bool) -> Failure:
    """Return an exception of the SDK as a failure of the table."""
    code: int | str | None = None
    sub_status: int | None = None
    if isinstance(error, CosmosHttpResponseError | CosmosBatchOperationError):
        code, sub_status = error.status_code, error.sub_status
        request = getattr(error.response, "request", None)
        if code == MISSING[0] and request is not None and "/docs" not in request.url:
            # The SDK asked for the container itself. The store gives no reason for this answer.
            sub_status = MISSING[1]
    elif isinstance(error, ClientAuthenticationError):
        code = CREDENTIAL
    return Failure(STORE, code, sub_status, is_write)


def convert(failure: Failure, error: BaseException) -> LockstepError:
    """The error that the engine gets, with the wait that the store asks for."""
    wait = (getattr(error, "headers", None) or {}).get("x-ms-retry-after-ms")
    return make_error(failure, first_line(error), float(wait) / 1000 if wait else None)


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
        case PatchDocument(document_id, fields, _, version):
            changes = [{"op": "set", "path": path, "value": v} for path, v in fields.items()]
            name, arguments = "patch", (document_id, changes)
            conditions |= {"if_match_etag": version} if version else {}
        case DeleteDocument(document_id, _, version):
            name, arguments = "delete", (document_id,)
            conditions |= {"if_match_etag": version} if version else {}
    return (name, arguments, conditions)
