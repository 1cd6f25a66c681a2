"""The common part of both baselines: the product's tracking handler, and Cosmos DB."""

import asyncio
import os
from collections.abc import Mapping
from typing import Any

import azure.functions as func
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos.aio import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from functions.handlers.tracking import Aircraft, FlightStatus, track
from shared.domain import wire
from shared.domain.handler import Context


def track_message(state: Mapping[str, Any], delivery: func.ServiceBusMessage) -> dict[str, Any]:
    body = delivery.get_body()
    context = Context(wire.from_properties(delivery.application_properties or {}, body))
    aircraft = track(
        Aircraft.model_validate(state), FlightStatus.model_validate_json(body), context
    )
    return aircraft.model_dump(mode="json")


DATABASE = "baseline"


class BaselineStore:
    """The account named by the app setting `Cosmos`."""

    def __init__(self) -> None:
        self.client: CosmosClient | None = None
        self.connecting = asyncio.Lock()

    async def container(self, name: str) -> ContainerProxy:
        async with self.connecting:
            if self.client is None:
                # The default transport opens ~/.netrc and asks for proxies on a thread each time.
                transport = AioHttpTransport(use_env_settings=False)
                settings = os.environ["Cosmos"]  # noqa: SIM112 - the name of a connection
                client = CosmosClient.from_connection_string(settings, transport=transport)
                self.client = await client.__aenter__()
        return self.client.get_database_client(DATABASE).get_container_client(name)


async def find_document(
    container: ContainerProxy, item_id: str, session: str
) -> dict[str, Any] | None:
    try:
        return dict(await container.read_item(item_id, partition_key=session))
    except CosmosResourceNotFoundError:
        return None
