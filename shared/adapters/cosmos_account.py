"""The client of a Cosmos DB account, and what its failures mean to a caller."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

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

# Throttled, busy, or not the write region: refused before anything was written.
REFUSED_STATUSES = frozenset({403, 429, 449})
TOO_LARGE = 413
THROTTLED = 429


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
        if self.has_lost_touch():
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

    def has_lost_touch(self) -> bool:
        """Whether writes have failed for so long that the client may look in a dead place."""
        since = self.failing_since
        return since is not None and time.monotonic() - since > self.reconnect_seconds

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        """A write; see writing(). It is remembered since when writes fail: reads may go on."""
        try:
            async with writing():
                yield
        except (Unavailable, OutcomeUnknown) as error:
            is_heard = isinstance(error, Throttled)
            self.failing_since = None if is_heard else self.failing_since or time.monotonic()
            raise
        else:
            self.failing_since = None

    def new_client(self) -> CosmosClient:
        """A client that is not connected yet."""
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


def new_transport() -> AioHttpTransport:
    """A transport that does not look for a proxy in the environment before each request.

    That look costs two trips to a thread, a quarter of what a request costs this process.
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
        raise refusal(error, error.status_code) from error
    except (AzureError, TimeoutError, OSError) as error:
        raise Unavailable(f"Cosmos DB cannot be reached: {first_line(error)}") from error


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
        if error.status_code == TOO_LARGE:
            raise TooLarge(first_line(error)) from error
        if error.status_code in REFUSED_STATUSES:
            raise refusal(error, error.status_code) from error
        raise OutcomeUnknown(f"a write to Cosmos DB failed: {first_line(error)}") from error
    except (AzureError, TimeoutError, OSError) as error:
        raise OutcomeUnknown(f"a write to Cosmos DB got no answer: {first_line(error)}") from error


def refusal(error: AzureError, status: int | None) -> Unavailable:
    """A refusal as the use cases know it, with the wait that the store asks for."""
    reason = f"Cosmos DB refused: {first_line(error)}"
    if status != THROTTLED:
        return Unavailable(reason)
    wait = (getattr(error, "headers", None) or {}).get("x-ms-retry-after-ms")
    return Throttled(reason, float(wait) / 1000 if wait else None)


def first_line(error: BaseException) -> str:
    """An SDK error without its page of headers."""
    return (str(error).splitlines() or [type(error).__name__])[0]
