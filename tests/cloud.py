"""Azure on one machine, inside the test process, as the product's settings see it."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cli.regions import CONFIG
from local.cloud import Cloud, CloudOptions
from local.config import load_config
from shared.settings import Settings
from shared.wiring import Adapters


@contextmanager
def running_cloud(
    logs: Path, partitions: int = 1, *, partitions_fail_over: bool = False
) -> Iterator[Cloud]:
    """Two namespaces and an account, empty, without hosts.

    Each container has so many physical `partitions`, whose writes may move one by one.
    """
    config = load_config(CONFIG)
    containers = tuple(replace(one, partitions=partitions) for one in config.cosmos.containers)
    cosmos = replace(
        config.cosmos, containers=containers, partitions_fail_over=partitions_fail_over
    )
    config = replace(config, cosmos=cosmos)
    with Cloud(config, CloudOptions(logs=logs)) as cloud:
        yield cloud


def settings_of(cloud: Cloud, region: str = "east", **overrides: str) -> Settings:
    """The settings an app in a region would have."""
    return Settings.read(
        {
            "LOCKSTEP_REGION": region,
            "LOCKSTEP_REGIONS": ",".join(cloud.namespaces),
            "Cosmos": cloud.cosmos.connection_string,
        }
        | {f"ServiceBus_{name}": ns.connection_string for name, ns in cloud.namespaces.items()}
        | overrides
    )


@pytest.fixture(scope="module")
def cloud(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    """One for all tests of a module, which may say PARTITIONS."""
    logs, partitions = tmp_path_factory.mktemp("logs"), getattr(request.module, "PARTITIONS", 1)
    with running_cloud(logs, partitions) as cloud:
        yield cloud


@asynccontextmanager
async def opened_adapters(cloud: Cloud, **settings: str) -> AsyncIterator[Adapters]:
    """Adapters that are closed at the end; faults that were armed meanwhile end as well."""
    adapters = Adapters.of(settings_of(cloud, **settings))
    try:
        yield adapters
    finally:
        cloud.faults.disarm()
        await adapters.close()


@pytest.fixture
async def adapters(request: pytest.FixtureRequest, cloud: Cloud) -> AsyncIterator[Adapters]:
    """Adapters for a test, with what its module's SETTINGS say."""
    async with opened_adapters(cloud, **getattr(request.module, "SETTINGS", {})) as adapters:
        yield adapters
