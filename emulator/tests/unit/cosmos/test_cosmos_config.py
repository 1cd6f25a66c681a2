"""The `Cosmos` section of the config: what it may say, and how it is refused."""

from typing import Any

import pytest

from local.cosmos.config import CosmosConfig, InvalidCosmosConfig

JOURNAL = {"Name": "journal", "PartitionKey": "/session"}


def section(**rest: Any) -> dict[str, Any]:
    """A section with one container, and more."""
    return {"Database": "lockstep", "Containers": [JOURNAL], **rest}


def test_one_region_and_one_partition_are_the_default() -> None:
    config = CosmosConfig.parse(section())

    assert len(config.regions) == 1
    assert [container.partitions for container in config.containers] == [1]


def test_regions_and_partitions_are_taken_as_they_are_given() -> None:
    containers = [{**JOURNAL, "Partitions": 3}]
    config = CosmosConfig.parse(section(Regions=["east", "West US 2"], Containers=containers))

    assert config.regions == ("east", "West US 2")
    assert config.containers[0].partitions == 3
    assert "Partitions" not in config.containers[0].properties


@pytest.mark.parametrize(
    "regions", [[], "east", [1], [""], ["east", "east"], ["East US", "east-us"], [" "], None]
)
def test_regions_that_clients_could_not_tell_apart_are_refused(regions: Any) -> None:
    with pytest.raises(InvalidCosmosConfig, match=r"Cosmos\.Regions"):
        CosmosConfig.parse(section(Regions=regions))


@pytest.mark.parametrize("count", [0, -1, 65, 1.5, "3", True, None])
def test_a_number_of_partitions_out_of_range_is_refused(count: Any) -> None:
    with pytest.raises(InvalidCosmosConfig, match=r"Cosmos\.Containers\[0\]\.Partitions"):
        CosmosConfig.parse(section(Containers=[{**JOURNAL, "Partitions": count}]))


def test_the_accounts_own_consistency_is_strong_unless_it_is_set() -> None:
    assert CosmosConfig.parse(section()).consistency == "Strong"
    assert CosmosConfig.parse(section(Consistency="Session")).consistency == "Session"

    with pytest.raises(InvalidCosmosConfig, match=r"Cosmos\.Consistency must be one of Eventual"):
        CosmosConfig.parse(section(Consistency="Telepathic"))


def test_partitions_fail_over_by_themselves_only_where_that_is_set() -> None:
    regions = ["east", "west"]
    on = section(Regions=regions, PerPartitionAutomaticFailover=True)

    assert not CosmosConfig.parse(section(Regions=regions)).partitions_fail_over
    assert CosmosConfig.parse(on).partitions_fail_over


@pytest.mark.parametrize(
    "rest",
    [
        {"PerPartitionAutomaticFailover": "yes"},
        {"Regions": ["east"]},
        {"Consistency": "BoundedStaleness"},
    ],
)
def test_what_azure_does_not_fail_over_by_partitions_is_refused(rest: dict[str, Any]) -> None:
    given = {"Regions": ["east", "west"], "PerPartitionAutomaticFailover": True, **rest}

    with pytest.raises(InvalidCosmosConfig, match=r"Cosmos\.PerPartitionAutomaticFailover"):
        CosmosConfig.parse(section(**given))
