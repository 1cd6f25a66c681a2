"""The baselines' Cosmos DB: one client per process, connected on first use."""

import asyncio
import os
from typing import Any

from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

DATABASE = "baseline"


class Store:
    """The account named by the app setting `Cosmos`."""

    def __init__(self) -> None:
        self.client: CosmosClient | None = None
        self.connecting = asyncio.Lock()

    async def container(self, name: str) -> ContainerProxy:
        """A container of the baseline's database."""
        async with self.connecting:
            if self.client is None:
                self.client = await new_client().__aenter__()
        return self.client.get_database_client(DATABASE).get_container_client(name)


def new_client() -> CosmosClient:
    """A client that is not connected yet.

    The default transport opens ~/.netrc and asks for proxies on a thread before every request.
    """
    settings = os.environ["Cosmos"]  # noqa: SIM112 - the name of a connection
    transport = AioHttpTransport(use_env_settings=False)
    return CosmosClient.from_connection_string(settings, transport=transport)


async def found(container: ContainerProxy, item_id: str, session: str) -> dict[str, Any] | None:
    """A document, or None: one point read."""
    try:
        return dict(await container.read_item(item_id, partition_key=session))
    except CosmosResourceNotFoundError:
        return None
