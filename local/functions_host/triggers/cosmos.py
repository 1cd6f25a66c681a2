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
from typing import TYPE_CHECKING, Any

from local.functions_host.function import Function
from local.functions_host.protos import TypedData
from local.functions_host.triggers.attempts import Attempts, Ending
from local.functions_host.triggers.cosmos_binding import (
    check,
    feed_of,
    feed_options,
    leases_of,
    locations_of,
)
from local.functions_host.triggers.listener import HostContext

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy, CosmosClient

    from local.functions_host.changefeed.lease_store import LeaseStore
    from local.functions_host.changefeed.processor import Processor

log = logging.getLogger(__name__)

RETRY_SECONDS = 2.0
LEASE_RETURN_SECONDS = 1.0


class CosmosListener:
    """Follows one container's change feed for one function."""

    def __init__(self, function: Function, context: HostContext) -> None:
        binding = function.trigger
        check(binding)
        self._function = function
        self._attempts = Attempts(function, context.worker)
        self._options = feed_options(binding)
        self._connection = context.settings.connection(binding.text("connection"), function.name)
        lease_setting = binding.text("leaseConnection", binding.text("connection"))
        self._lease_connection = context.settings.connection(lease_setting, function.name)
        if self._lease_connection == self._connection and leases_of(binding) == feed_of(binding):
            raise binding.refused("the lease container must not be the monitored one")
        self._creates_leases = binding.flag("createLeaseContainerIfNotExists", False)
        self._host = f"{context.region}-{uuid.uuid4()}"
        self._processor: Processor | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def start(self) -> None:
        """Begin to follow; an account that is down or lacks a container is tried on."""
        self._running = asyncio.create_task(self._run())

    async def stop(self, drain_seconds: float) -> None:
        """Let a run in progress end within the limit, then give the leases back."""
        self._is_stopping = True
        self._attempts.stop()
        if self._running is not None:
            if self._processor is not None:
                self._processor.stop(drain_seconds)
                await asyncio.wait([self._running], timeout=drain_seconds + LEASE_RETURN_SECONDS)
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        from azure.core.exceptions import AzureError

        while not self._is_stopping:
            try:
                await self._process()
            except AzureError as error:
                text = (str(error) or type(error).__name__).splitlines()[0]
                log.warning("trying on: %s", text, extra={"function": self._function.name})
                await asyncio.sleep(RETRY_SECONDS)

    async def _process(self) -> None:
        from local.functions_host.changefeed.processor import Processor

        binding = self._function.trigger
        places = locations_of(binding)
        async with (
            opened(self._connection, places) as client,
            opened(self._lease_connection, places) as leasing,
        ):
            database_name, container_name = feed_of(binding)
            database = client.get_database_client(database_name)
            monitored = database.get_container_client(container_name)
            leases = await self._lease_store(leasing, monitored)
            self._processor = Processor(self._host, monitored, leases, self._options, self._invoke)
            await self._processor.run()

    async def _lease_store(
        self, client: "CosmosClient", monitored: "ContainerProxy"
    ) -> "LeaseStore":
        from azure.cosmos import PartitionKey

        from local.functions_host.changefeed.lease_store import LeaseStore

        binding = self._function.trigger
        database_name, name = leases_of(binding)
        database = client.get_database_client(database_name)
        if self._creates_leases:
            await database.create_container_if_not_exists(name, PartitionKey("/id"))
        container = database.get_container_client(name)
        await container.read()
        feed = (await monitored.read())["_rid"]
        return LeaseStore(container, f"{binding.text('leaseContainerPrefix', '')}{feed}")

    async def _invoke(self, documents: list[dict[str, Any]]) -> bool:
        """Run the function on changes; False if a stop came before it was done with them."""
        function = self._function
        inputs = {function.trigger.name: TypedData(string=json.dumps(documents))}
        ending = await self._attempts.run(inputs)
        if ending is Ending.EXHAUSTED:
            log.error(
                "the lease advances all the same: %d changes are lost to this function",
                len(documents),
                extra={"function": function.name},
            )
        return ending is not Ending.STOPPED


@asynccontextmanager
async def opened(connection_string: str, locations: list[str]) -> AsyncIterator["CosmosClient"]:
    """Open a client and close it, also when opening fails, which the client itself does not."""
    from azure.cosmos.aio import CosmosClient

    client = CosmosClient.from_connection_string(connection_string, preferred_locations=locations)
    try:
        await client.__aenter__()
        yield client
    finally:
        await client.close()
