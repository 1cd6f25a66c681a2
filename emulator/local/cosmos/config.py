"""The `Cosmos` section of `local.config.json`: regions, a database and its containers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local.cosmos.items.partitions import PARTITIONS_MAX

ONE_REGION = ("East US",)  # ApplicationRegion of .NET takes names of Azure's regions alone
CONSISTENCY = ("Eventual", "ConsistentPrefix", "Session", "BoundedStaleness", "Strong")
STRONGEST = CONSISTENCY[-1]
NO_MARKS = str.maketrans("", "", " -_")
PROPERTIES = {"DefaultTtl": "defaultTtl", "IndexingPolicy": "indexingPolicy"}


class InvalidCosmosConfig(ValueError):
    """A key of the `Cosmos` section is missing, unknown or of the wrong kind."""


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """One container; `properties` is its resource document as the service would show it.

    It is created with so many physical `partitions`.
    """

    name: str
    properties: Mapping[str, Any]
    partitions: int = 1


@dataclass(frozen=True, slots=True)
class CosmosConfig:
    """The database to create, its containers, and the regions of the account.

    Writes go to the first region until they are moved. `consistency` is the account's own, which a
    request may relax. With `partitions_fail_over` the writes of a physical partition may move by
    themselves, and clients are told so.
    """

    database: str
    containers: tuple[ContainerConfig, ...]
    regions: tuple[str, ...] = ONE_REGION
    consistency: str = STRONGEST
    partitions_fail_over: bool = False

    @classmethod
    def parse(cls, section: Mapping[str, Any]) -> "CosmosConfig":
        """Read the section; raises InvalidCosmosConfig naming the key at fault."""
        refuse_unknown(
            section,
            {"Regions", "Database", "Containers", "Consistency", "PerPartitionAutomaticFailover"},
            "Cosmos",
        )
        database = read_text(section, "Database", "Cosmos")
        containers = section.get("Containers", [])
        if not isinstance(containers, list):
            raise InvalidCosmosConfig("Cosmos.Containers must be a list")
        consistency = section.get("Consistency", STRONGEST)
        if consistency not in CONSISTENCY:
            known = ", ".join(CONSISTENCY)
            raise InvalidCosmosConfig(f"Cosmos.Consistency must be one of {known}")
        regions = parse_regions(section.get("Regions", list(ONE_REGION)))
        return cls(
            database,
            tuple(parse_container(c, f"Cosmos.Containers[{i}]") for i, c in enumerate(containers)),
            regions,
            consistency,
            parse_failover(section, regions, consistency),
        )


def parse_regions(names: Any) -> tuple[str, ...]:
    """Read the names of the regions, which clients compare without case, blanks, `-` and `_`."""
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise InvalidCosmosConfig("Cosmos.Regions must be a list of names")
    folded = [name.translate(NO_MARKS).lower() for name in names]
    if not all(folded) or len(set(folded)) < len(folded):
        raise InvalidCosmosConfig("Cosmos.Regions must have names that differ")
    return tuple(names)


def parse_failover(section: Mapping[str, Any], regions: tuple[str, ...], consistency: str) -> bool:
    """Read whether partitions fail over by themselves, which Azure does not offer everywhere."""
    is_on = section.get("PerPartitionAutomaticFailover", False)
    if not isinstance(is_on, bool):
        raise InvalidCosmosConfig("Cosmos.PerPartitionAutomaticFailover must be true or false")
    if is_on and (len(regions) == 1 or consistency == "BoundedStaleness"):
        raise InvalidCosmosConfig(
            "Cosmos.PerPartitionAutomaticFailover needs several Regions, and another Consistency"
            " than BoundedStaleness"
        )
    return is_on


def parse_container(section: Any, where: str) -> ContainerConfig:
    if not isinstance(section, Mapping):
        raise InvalidCosmosConfig(f"{where} must be an object")
    refuse_unknown(
        section, {"Name", "PartitionKey", "DefaultTtl", "IndexingPolicy", "Partitions"}, where
    )
    name = read_text(section, "Name", where)
    path = read_text(section, "PartitionKey", where)
    if not path.startswith("/"):
        raise InvalidCosmosConfig(f"{where}.PartitionKey must be a path such as /session")
    properties = {"id": name, "partitionKey": {"paths": [path], "kind": "Hash", "version": 2}}
    properties |= {written: section[key] for key, written in PROPERTIES.items() if key in section}
    count = section.get("Partitions", 1)
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= PARTITIONS_MAX:
        raise InvalidCosmosConfig(f"{where}.Partitions must be a number from 1 to {PARTITIONS_MAX}")
    return ContainerConfig(name, properties, count)


def refuse_unknown(section: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in section:
        if key not in known:
            raise InvalidCosmosConfig(f"{where}.{key} is not a known key")


def read_text(section: Mapping[str, Any], key: str, where: str) -> str:
    value = section.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidCosmosConfig(f"{where}.{key} must be a non-empty string")
    return value
