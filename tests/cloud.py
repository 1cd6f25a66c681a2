"""Azure on one machine, inside the test process, as the product's settings see it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from cli.regions import CONFIG
from local.cloud import Cloud, CloudOptions
from local.config import load_config
from shared.settings import Settings


@contextmanager
def running_cloud(logs: Path, partitions: int = 1) -> Iterator[Cloud]:
    """Two namespaces and an account, empty, without hosts.

    Each container has so many physical `partitions`.
    """
    config = load_config(CONFIG)
    containers = tuple(replace(one, partitions=partitions) for one in config.cosmos.containers)
    config = replace(config, cosmos=replace(config.cosmos, containers=containers))
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
