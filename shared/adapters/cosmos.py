"""A Cosmos DB account and its containers: reads, queries and batches, and what failures mean.

`retry_write` stays at its default: a hedged claim would fight itself.
"""

import asyncio
import copy
import json
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from aiohttp import ClientConnectorError
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    ServiceRequestError,
    ServiceRequestTimeoutError,
    ServiceResponseTimeoutError,
)
from azure.core.pipeline.transport import AioHttpTransport, AsyncHttpResponse
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import (
    CosmosBatchOperationError,
    CosmosHttpResponseError,
    CosmosResourceNotFoundError,
)
from azure.identity.aio import DefaultAzureCredential

from shared.domain.errors import LockstepError
from shared.domain.failures import (
    CREDENTIAL,
    MISSING,
    STORE,
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

log = logging.getLogger("lockstep.journal")

# For reads that may be old: they cost half of what the account's strong consistency does.
RELAXED = ("x-ms-consistency-level", "Eventual")
PAGE_MAX = 100

# One call has time for several tries: a region that has just gone costs one or two of them.
TRIES_IN_A_CALL = 3
# Clients that look for the write region all ask for the account's description: once for them all.
DESCRIPTION_SECONDS = 1.0
# The answers by which a region says that it cannot write for now, and does not say whether it did.
UNAVAILABLE = (408, 500, 502, 503, 504)


@dataclass(eq=False, repr=False)
class CosmosAccount:
    """The client of one account, connected on first use and shared by everything in a process.

    No call takes longer than `call_seconds`, whatever the account does; a query that goes on
    answering takes that long for each answer. A region that does not answer is left for another
    one, as far as the account has one that may do what is asked.
    """

    connection_string: str | None
    endpoint: str | None
    client_id: str | None
    call_seconds: float
    locations: Sequence[str] = ()
    telemetry: Telemetry | None = None

    def __post_init__(self) -> None:
        self.client: CosmosClient | None = None
        self.credential: DefaultAzureCredential | None = None
        self.connecting = asyncio.Lock()
        self.containers: dict[tuple[str, str], ContainerProxy] = {}

    async def container(self, database: str, name: str) -> ContainerProxy:
        """A container, with the client connected. Raises Unavailable, and Misconfigured."""
        known = self.containers.get((database, name))
        if known is not None:
            return known
        async with reading(), asyncio.timeout(self.call_seconds), self.connecting:
            client = self.client or await self.connect()
        container = client.get_database_client(database).get_container_client(name)
        self.containers[database, name] = container
        return container

    async def connect(self) -> CosmosClient:
        """Ask the account where to read and write."""
        async with AsyncExitStack() as opened:
            try:
                client = self.new_client()
                opened.push_async_callback(client.close)
                await client.__aenter__()
            except ValueError as error:
                # What a setting holds is no connection string, or no key.
                raise make_error(Failure(STORE, CREDENTIAL), first_line(error)) from error
            opened.pop_all()
            self.client = client
        return client

    def new_client(self) -> CosmosClient:
        options: dict[str, Any] = {
            "transport": AccountTransport(self.telemetry, self.call_seconds / TRIES_IN_A_CALL),
            "preferred_locations": [*self.locations],
            # What has no answer is read in another region, not often in the same one.
            "retry_connect": 1,
        }
        if self.connection_string is not None:
            return CosmosClient.from_connection_string(self.connection_string, **options)
        self.credential = DefaultAzureCredential(managed_identity_client_id=self.client_id)
        return CosmosClient(self.endpoint or "", credential=self.credential, **options)

    async def close(self) -> None:
        """Disconnect; the next use connects again."""
        self.containers.clear()
        client, self.client = self.client, None
        credential, self.credential = self.credential, None
        if client is not None:
            with suppress(AzureError, OSError):
                await client.close()
        if credential is not None:
            await credential.close()


class SpendingOver(LockstepError):
    """A search has cost what it may, and asks no further partition."""


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
            async with reading(), asyncio.timeout(self.account.call_seconds):
                found = await container.read_item(document_id, partition_key=session, **options)
                return dict(found)
        return None

    async def write(self, session: str, operations: Sequence[Operation]) -> tuple[WriteResult, str]:
        """See Container.write: one transactional batch, which the SDK may try again by itself."""
        container = await self.account.container(self.database, self.name)
        batch = [encode_operation(operation) for operation in operations]
        tries = Tries()
        try:
            async with asyncio.timeout(self.account.call_seconds):
                answers = await container.execute_item_batch(
                    batch,
                    partition_key=session,
                    raw_request_hook=tries.requests.append,
                    raw_response_hook=tries.responses.append,
                )
        except Exception as error:
            failure = tries.weigh(read_failure(error, is_write=True))
            if classify(failure).failure_class is not FailureClass.ANSWER:
                raise convert(failure, tries.explain(error)) from error
            if not isinstance(error, CosmosBatchOperationError):
                raise
            # The first operation that was refused says what that means.
            return operations[int(error.error_index)].refused, ""
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
        options["raw_request_hook"] = partial(keep_limit, may_be_old=query.may_be_old)
        found: list[Document] = []
        # Whoever limits what a search may cost knows by that whether it came to its end.
        with suppress(SpendingOver):
            async with reading(), asyncio.timeout(self.account.call_seconds) as limit:
                async for document in container.query_items(query.sql, **options):
                    limit.reschedule(asyncio.get_running_loop().time() + self.account.call_seconds)
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
        # The SDK (4.17) takes `initial_headers` for a read and does not send them.
        options["raw_request_hook"] = relax
    if clock is not None:

        def take_date(headers: Mapping[str, str], _: object) -> None:
            clock.seconds = parsedate_to_datetime(headers["Date"]).timestamp()

        options["response_hook"] = take_date
    return options


def relax(request: Any) -> None:
    """Let a request read what may be old."""
    name, level = RELAXED
    request.http_request.headers[name] = level


def keep_limit(request: Any, *, may_be_old: bool) -> None:
    """Raise SpendingOver in place of one more request of a search that has cost what it may."""
    spending = CURRENT.get()
    if spending is not None and spending.is_spent:
        raise SpendingOver
    if may_be_old:
        relax(request)


@dataclass
class Tries:
    """The tries of one write, as they were sent and answered: the SDK repeats some by itself."""

    requests: list[Any] = field(default_factory=list)
    responses: list[Any] = field(default_factory=list)

    def weigh(self, failure: Failure) -> Failure:
        """The last try's failure, or none that says anything where an earlier one may have worked.

        A write that got a 503 is sent again. If that is refused, the first try may have worked.
        Where the time ran out while each try was refused, the last one's answer is the failure.
        """
        answers = [answer_of(one.http_response) for one in self.responses]
        is_doubtful = len(answers) < len(self.requests) or any(
            classify(answer).failure_class is FailureClass.UNKNOWN for answer in answers
        )
        if failure.code is None and answers and not is_doubtful:
            return answers[-1]
        nothing_happened = (FailureClass.TRANSIENT, FailureClass.DESTINATION)
        if classify(failure).failure_class not in nothing_happened:
            return failure
        return Failure(STORE) if is_doubtful else failure

    def explain(self, error: Exception) -> Exception:
        """Return the error, or where the time of the call ran out, what its last try met."""
        last = self.responses[-1].http_response if self.responses else None
        if isinstance(error, TimeoutError) and isinstance(last, NotAnswered):
            return TimeoutError(last.reason)
        return error


def answer_of(response: Any) -> Failure:
    """The answer to one try of a write; none where its region gave none and may have it."""
    if isinstance(response, NotAnswered) and response.was_sent:
        return Failure(STORE)
    sub_status = response.headers.get("x-ms-substatus")
    return Failure(STORE, response.status_code, int(sub_status) if sub_status else None)


@asynccontextmanager
async def reading() -> AsyncIterator[None]:
    """Turn failed reads into errors of the engine's; that there is no such document passes."""
    try:
        yield
    except LockstepError:
        raise
    except Exception as error:
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
        case PatchDocument(document_id, fields, _, version, filled):
            changes = [{"op": "set", "path": path, "value": v} for path, v in fields.items()]
            name, arguments = "patch", (document_id, changes)
            conditions |= {"if_match_etag": version} if version else {}
            if filled:
                conditions["filter_predicate"] = f"FROM c WHERE ARRAY_LENGTH(c.{filled}) > 0"
        case DeleteDocument(document_id, _, version):
            name, arguments = "delete", (document_id,)
            conditions |= {"if_match_etag": version} if version else {}
    return (name, arguments, conditions)


class NotAnswered(AsyncHttpResponse):
    """The answer to a write that its region left without one.

    It is the one that a region gives that takes no writes. On it the SDK asks the account where to
    write, and for a partition that fails over by itself it asks the other regions: every second,
    until the call's time is up. `was_sent` says that the write may have been applied.
    """

    def __init__(self, request: Any, reason: str, *, was_sent: bool) -> None:
        super().__init__(request, None)
        self.status_code = 403
        self.reason = reason
        self.headers = {"x-ms-substatus": "3", "Content-Type": "application/json"}
        self.content_type = "application/json"
        self.was_sent = was_sent

    def body(self) -> bytes:
        return json.dumps({"code": "Forbidden", "message": self.reason}).encode()


@dataclass(slots=True)
class Host:
    """One host of the account: when it answered last, and whether it says nothing since."""

    heard_at: float = float("-inf")
    is_silent: bool = False
    tried_at: float = float("-inf")


@dataclass(slots=True)
class Description:
    """The account's description as one host gave it last; the lock is for who asks for it."""

    response: Any = None
    read_at: float = float("-inf")
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class AccountTransport(AioHttpTransport):  # type: ignore[misc] # its types are its own
    """The transport of one client: requests are counted, limited in time, and leave dead regions.

    The SDK waits for an answer for a minute, and then asks the same region again. Whether another
    one takes the writes by now it learns only from an answer, and a region that is silent, or takes
    no connection, gives none. So a request that has no answer after `seconds` is answered here, by
    what makes the SDK look elsewhere. A silent region is sent one request at a time.
    """

    def __init__(self, telemetry: Telemetry | None, seconds: float) -> None:
        # Left to itself, the transport searches the environment for a proxy before each request.
        # That costs two trips to a thread, a quarter of what a request costs this process.
        super().__init__(use_env_settings=False)
        self.telemetry = telemetry
        self.seconds = seconds
        self.hosts: defaultdict[str, Host] = defaultdict(Host)
        self.descriptions: defaultdict[str, Description] = defaultdict(Description)
        # The regions' own addresses, as the account named them last.
        self.regions: tuple[str, ...] = ()

    async def send(self, request: Any, *, is_one_try: bool = False, **options: Any) -> Any:
        """Send a request once, unless its host is silent and was tried a moment ago.

        A write without an answer is a NotAnswered. Anything else raises ServiceRequestError, on
        which the SDK reads in another region.
        """
        url = urlsplit(request.url)
        if url.path in ("", "/") and not is_one_try:
            return await self.describe(request, options)
        loop, host = asyncio.get_running_loop(), self.hosts[url.netloc]
        began = loop.time()
        if host.is_silent and began - host.tried_at < self.seconds:
            return leave_unanswered(request, f"{url.netloc} is silent", was_sent=False)
        host.tried_at = began
        try:
            async with asyncio.timeout(self.seconds):
                response: Any = await super().send(request, **options)
        except (TimeoutError, ServiceRequestTimeoutError, ServiceResponseTimeoutError) as error:
            # A slow answer is no silence: others came meanwhile.
            if host.heard_at < began and not host.is_silent:
                log.warning("nothing is heard of %s, of the journal's account", url.netloc)
            host.is_silent = host.heard_at < began
            reason = f"{url.netloc} gave no answer in {loop.time() - began:.1f} s"
            was_sent = not isinstance(error, ServiceRequestTimeoutError)
            return leave_unanswered(request, reason, was_sent=was_sent)
        except (AzureError, OSError) as error:
            was_sent = not isinstance(getattr(error, "inner_exception", None), ClientConnectorError)
            return leave_unanswered(request, f"{url.netloc}: {error}", was_sent=was_sent)
        if host.is_silent:
            log.warning("%s, of the journal's account, answers again", url.netloc)
        host.heard_at, host.is_silent = loop.time(), False
        charge = float(response.headers.get("x-ms-request-charge") or 0)
        spending = CURRENT.get()
        if spending is not None:
            spending.request_units += charge
        if charge and self.telemetry is not None:
            self.telemetry.add(REQUEST_UNITS, charge, operation=name_operation(request))
        if response.status_code in UNAVAILABLE and name_operation(request) == "batch":
            # The SDK would ask the same region for five minutes more.
            reason = f"{url.netloc}: status {response.status_code}"
            return NotAnswered(request, reason, was_sent=True)
        return response

    async def describe(self, request: Any, options: dict[str, Any]) -> Any:
        """Ask for the account's description, where nothing else helps in another region.

        The account's own address leads to its write region, and may be gone with it. What is asked
        of a region itself is whether it is there, so nobody else answers that.
        """
        description = self.descriptions[request.url]
        async with description.asking:
            loop = asyncio.get_running_loop()
            if loop.time() - description.read_at < DESCRIPTION_SECONDS:
                return description.response
            is_region = urlsplit(request.url).netloc in {urlsplit(r).netloc for r in self.regions}
            places = [request.url] if is_region else [request.url, *self.regions]
            for place in places:
                asked = copy.copy(request)
                asked.url = place
                try:
                    response = await self.send(asked, is_one_try=True, **options)
                    if response.status_code not in UNAVAILABLE:
                        break
                except ServiceRequestError:
                    if place == places[-1]:
                        raise
            if response.status_code == HTTPStatus.OK:
                locations = json.loads(response.body())["readableLocations"]
                self.regions = tuple(one["databaseAccountEndpoint"] for one in locations)
            description.response, description.read_at = response, loop.time()
            return response


def leave_unanswered(request: Any, reason: str, *, was_sent: bool) -> NotAnswered:
    """Answer a write, or raise what makes the SDK read elsewhere."""
    if name_operation(request) == "batch":
        return NotAnswered(request, reason, was_sent=was_sent)
    raise ServiceRequestError(reason)


def name_operation(request: Any) -> str:
    """Return a word for what a request to the store does."""
    if request.headers.get("x-ms-cosmos-is-batch-request"):
        return "batch"
    if request.headers.get("x-ms-documentdb-isquery"):
        return "query"
    return "read" if request.method == "GET" else "other"
