"""Both clients of azure-cosmos, the blocking one and that of asyncio: one test reads them alike."""

from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any

from azure.cosmos import ContainerProxy
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient

from wire.cosmos_account import RunningAccount

CLIENTS = ("blocking", "asyncio")


@asynccontextmanager
async def container_of(kind: str, account: RunningAccount, name: str) -> AsyncIterator[Any]:
    """A container as one of CLIENTS sees it; what its methods give is for `done` and `every`."""
    if kind == "blocking":
        yield account.database.get_container_client(name)
        return
    async with AsyncCosmosClient(account.cosmos.endpoint, account.cosmos.key) as client:
        yield client.get_database_client("lockstep").get_container_client(name)


def everywhere(container: Any, text: str, **rest: Any) -> Any:
    """A query over all partitions, which only the blocking client wants to be told."""
    if isinstance(container, ContainerProxy):
        rest["enable_cross_partition_query"] = True
    return container.query_items(text, **rest)


async def done(answer: Any) -> Any:
    """What a method answered; what it raises is raised here, or before."""
    return await answer if isawaitable(answer) else answer


async def every(results: AsyncIterable[Any] | Iterable[Any]) -> list[Any]:
    """All that a method iterates over."""
    if isinstance(results, AsyncIterable):
        return [one async for one in results]
    return list(results)


async def pages_of(pages: Any) -> list[list[Any]]:
    """All pages of `by_page`, each as a list."""
    return [await every(page) for page in await every(pages)]


async def first_page(pages: Any) -> list[Any]:
    """The first page of `by_page`; its token is then that of the next."""
    return await every(await anext(pages) if isinstance(pages, AsyncIterator) else next(pages))
