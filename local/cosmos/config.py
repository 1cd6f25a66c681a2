"""The `Cosmos` section of `local.config.json`: a database and its containers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class InvalidCosmosConfig(ValueError):
    """A key of the `Cosmos` section is missing, unknown or of the wrong kind."""


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """One container; `properties` is its resource document as the service would show it."""

    name: str
    properties: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CosmosConfig:
    """The database to create, and its containers."""

    database: str
    containers: tuple[ContainerConfig, ...]

    @classmethod
    def parse(cls, section: Mapping[str, Any]) -> "CosmosConfig":
        """Read the section; raises InvalidCosmosConfig naming the key at fault."""
        refuse_unknown(section, {"Database", "Containers"}, "Cosmos")
        database = text(section, "Database", "Cosmos")
        containers = section.get("Containers", [])
        if not isinstance(containers, list):
            raise InvalidCosmosConfig("Cosmos.Containers must be a list")
        named = enumerate(containers)
        return cls(database, tuple(parse_container(c, f"Cosmos.Containers[{i}]") for i, c in named))


def parse_container(section: Any, where: str) -> ContainerConfig:
    """Read one container: Name, PartitionKey, and perhaps DefaultTtl and IndexingPolicy."""
    if not isinstance(section, Mapping):
        raise InvalidCosmosConfig(f"{where} must be an object")
    refuse_unknown(section, {"Name", "PartitionKey", "DefaultTtl", "IndexingPolicy"}, where)
    name = text(section, "Name", where)
    path = text(section, "PartitionKey", where)
    if not path.startswith("/"):
        raise InvalidCosmosConfig(f"{where}.PartitionKey must be a path such as /session")
    properties: dict[str, Any] = {
        "id": name,
        "partitionKey": {"paths": [path], "kind": "Hash", "version": 2},
    }
    for key, property_name in (("DefaultTtl", "defaultTtl"), ("IndexingPolicy", "indexingPolicy")):
        if key in section:
            properties[property_name] = section[key]
    return ContainerConfig(name, properties)


def refuse_unknown(section: Mapping[str, Any], known: set[str], where: str) -> None:
    """Raise InvalidCosmosConfig for a key that is not among the known ones."""
    for key in section:
        if key not in known:
            raise InvalidCosmosConfig(f"{where}.{key} is not a known key")


def text(section: Mapping[str, Any], key: str, where: str) -> str:
    """A required, non-empty string."""
    value = section.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidCosmosConfig(f"{where}.{key} must be a non-empty string")
    return value
