"""The Cosmos DB trigger: changed documents, latest version, as a JSON array.

A retry policy holds the lease until the function succeeds or the policy is used up. Then, and
without a policy, the lease advances over a failure, as in the real extension; the failure is logged
with the number of changes that will not come again.
"""

import asyncio
import json
import logging
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from local.functions_host.config.functions import AppFunction, Binding
from local.functions_host.protos import TypedData
from local.functions_host.triggers.listener import (
    HostContext,
    Listener,
    RetriesEnd,
    RetryingInvoker,
)

if TYPE_CHECKING:  # the client is heavy: an app without this trigger never imports it
    from azure.cosmos.aio import CosmosClient
    from azure.cosmos.exceptions import CosmosHttpResponseError

    from local.functions_host.clients.change_feed import ChangeFeedProcessor, FeedOptions, FeedStart

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
LEASE_RETURN_SECONDS = 1.0
HONOURED = (
    "connection",
    "databaseName",
    "containerName",
    "leaseConnection",
    "leaseDatabaseName",
    "leaseContainerName",
    "leaseContainerPrefix",
    "createLeaseContainerIfNotExists",
    "feedPollDelay",
    "leaseAcquireInterval",
    "leaseRenewInterval",
    "leaseExpirationInterval",
    "maxItemsPerInvocation",
    "startFromBeginning",
    "startFromTime",
    "preferredLocations",
    "changeFeedMode",
)


class CosmosListener(Listener):
    def __init__(self, function: AppFunction, context: HostContext) -> None:
        binding = function.trigger
        check_binding(binding)
        self._function = function
        self._invoker = RetryingInvoker(function, context.worker)
        self._options = feed_options(binding)
        self._locations = preferred_locations(binding)
        self._feed = binding.text("databaseName"), binding.text("containerName")
        self._lease_container = (
            binding.text("leaseDatabaseName", binding.text("databaseName")),
            binding.text("leaseContainerName", "leases"),
        )
        self._lease_prefix = binding.text("leaseContainerPrefix", "")
        self._creates_leases = binding.flag("createLeaseContainerIfNotExists", False)
        self._connection = context.settings.connection(binding.text("connection"), function.name)
        lease_setting = binding.text("leaseConnection", binding.text("connection"))
        self._lease_connection = context.settings.connection(lease_setting, function.name)
        if (self._lease_connection, self._lease_container) == (self._connection, self._feed):
            raise binding.unsupported("the lease container must not be the monitored one")
        self._host = f"{context.region}-{uuid.uuid4()}"
        self._processor: ChangeFeedProcessor | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self) -> None:
        """Begin to follow; an account that is down is tried again.

        One that refuses, or lacks a container, leaves the listener dead until the host restarts:
        the extension can build its processor only once (4.8.2).
        """
        self._running = asyncio.create_task(self._run())

    async def stop(self, drain_seconds: float) -> None:
        """Let a run in progress end within the limit, then give the leases back."""
        self._is_stopping = True
        self._invoker.stop()
        if self._running is not None:
            if self._processor is not None:
                self._processor.stop(drain_seconds)
                await asyncio.wait([self._running], timeout=drain_seconds + LEASE_RETURN_SECONDS)
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        from azure.core.exceptions import AzureError
        from azure.cosmos.exceptions import CosmosHttpResponseError

        while not self._is_stopping:
            try:
                await self._process()
            except AzureError as error:
                text = (str(error) or type(error).__name__).splitlines()[0]
                extra = {"function": self._function.name}
                if isinstance(error, CosmosHttpResponseError) and is_refusal(error):
                    log.error("the listener did not start and stays dead: %s", text, extra=extra)
                    return
                log.warning("trying again: %s", text, extra=extra)
                await asyncio.sleep(RETRY_SECONDS)

    async def _process(self) -> None:
        from azure.cosmos import PartitionKey

        from local.functions_host.clients.change_feed import ChangeFeedProcessor, FeedLeaseStore

        async with (
            open_client(self._connection, self._locations) as client,
            open_client(self._lease_connection, self._locations) as lease_client,
        ):
            database, container = self._feed
            monitored = client.get_database_client(database).get_container_client(container)
            database, container = self._lease_container
            lease_database = lease_client.get_database_client(database)
            if self._creates_leases:
                await lease_database.create_container_if_not_exists(container, PartitionKey("/id"))
            lease_container = lease_database.get_container_client(container)
            await lease_container.read()
            feed_id = (await monitored.read())["_rid"]
            leases = FeedLeaseStore(lease_container, f"{self._lease_prefix}{feed_id}")
            self._processor = ChangeFeedProcessor(
                self._host, monitored, leases, self._options, self._invoke
            )
            await self._processor.run()

    async def _invoke(self, documents: list[dict[str, Any]]) -> bool:
        """Run the function on changes; False if a stop came before it was done with them."""
        function = self._function
        inputs = {function.trigger.name: TypedData(string=json.dumps(documents))}
        end = await self._invoker.run(inputs)
        if end is RetriesEnd.EXHAUSTED:
            text = "the lease advances all the same: %d changes are lost to this function"
            log.error(text, len(documents), extra={"function": function.name})
        return end is not RetriesEnd.STOPPED


def is_refusal(error: "CosmosHttpResponseError") -> bool:
    """Return whether an account forbids what a listener needs at its start, or has not got it.

    Not so while its write region moves, or a replica is behind.
    """
    answer = error.status_code, error.sub_status
    return answer[0] in (403, 404) and answer not in ((403, 3), (404, 1002))


def check_binding(binding: Binding) -> None:
    binding.only(*HONOURED)
    mode = binding.text("changeFeedMode", "LatestVersion")
    if mode.replace("_", "").lower() != "latestversion":
        raise binding.unsupported(f"changeFeedMode {mode} is not honoured, only LatestVersion")


def feed_options(binding: Binding) -> "FeedOptions":
    """Read the binding's numbers; the defaults are those of the extension."""
    from local.functions_host.clients.change_feed import FeedOptions

    return FeedOptions(
        binding.number("feedPollDelay", 5000) / 1000,
        binding.number("leaseAcquireInterval", 13000) / 1000,
        binding.number("leaseRenewInterval", 17000) / 1000,
        binding.number("leaseExpirationInterval", 60000) / 1000,
        binding.number("maxItemsPerInvocation", 100),
        feed_start(binding),
    )


def feed_start(binding: Binding) -> "FeedStart":
    """Return where a feed without a lease begins; naming it in both ways at once is Unsupported."""
    is_from_beginning = binding.flag("startFromBeginning", False)
    if "startFromTime" not in binding.properties:
        return "Beginning" if is_from_beginning else "Now"
    if is_from_beginning:
        raise binding.unsupported("startFromBeginning and startFromTime exclude each other")
    try:
        moment = datetime.fromisoformat(binding.text("startFromTime"))
    except ValueError as error:
        raise binding.unsupported(f"startFromTime: {error}") from error
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def preferred_locations(binding: Binding) -> list[str]:
    """The regions to read from, nearest first; none leaves it to the account."""
    names = binding.text("preferredLocations", "").split(",")
    return [name.strip() for name in names if name.strip()]


@asynccontextmanager
async def open_client(connection: str, locations: list[str]) -> AsyncIterator["CosmosClient"]:
    """Open a client and close it, also when opening fails, which the client itself does not."""
    from azure.cosmos.aio import CosmosClient

    client = CosmosClient.from_connection_string(connection, preferred_locations=locations)
    try:
        await client.__aenter__()
        yield client
    finally:
        await client.close()
