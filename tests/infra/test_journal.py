"""The journal in Azure: one write region, strong, three regions, the containers of one machine."""

from typing import Any

import pytest

from tests.infra.bicep import Kind, text
from tests.infra.evaluation import Template
from tests.infra.parity import azure_containers, deployment, local_config, local_containers


def journal() -> Template:
    return deployment().module("journal")


def account() -> Any:
    return journal().resource("account")["properties"]


def test_containers_in_azure_equal_the_local_containers() -> None:
    assert azure_containers(journal()) == local_containers(local_config())


@pytest.mark.parametrize("switch", [{"producers": ["2222"]}, {"ledgersName": "ledgers"}])
def test_ledgers_of_producers_outside_lie_in_a_container_like_the_journal(
    switch: dict[str, Any],
) -> None:
    local = local_containers(local_config())

    declared = azure_containers(deployment(**switch).module("journal"))

    assert declared == local | {"ledgers": local["journal"]}


def test_what_nobody_uses_of_a_container_is_scaled_away() -> None:
    containers = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"
    options = [
        one.body["properties"]["options"] for one in journal().resources() if one.type == containers
    ]

    assert [one["autoscaleSettings"]["maxThroughput"] for one in options] == [4_000, 1_000]


def test_the_account_is_strong_with_a_single_write_region_that_fails_over() -> None:
    found = account()

    assert found["consistencyPolicy"] == {"defaultConsistencyLevel": "Strong"}
    assert found["enableMultipleWriteLocations"] is False
    assert found["enableAutomaticFailover"] is True


@pytest.mark.parametrize(
    ("switch", "capabilities"),
    [
        ({}, [{"name": "EnablePerPartitionAutomaticFailover"}]),
        ({"partitionFailover": False}, []),
    ],
)
def test_partitions_of_the_journal_move_their_writes_by_themselves_unless_switched_off(
    switch: dict[str, Any], capabilities: list[Any]
) -> None:
    found = deployment(**switch).module("journal").resource("account")["properties"]

    assert found["capabilities"] == capabilities
    # What it needs of an account.
    assert found["consistencyPolicy"] == {"defaultConsistencyLevel": "Strong"}
    assert found["enableMultipleWriteLocations"] is False
    assert found["backupPolicy"]["type"] == "Continuous"
    assert len(found["locations"]) > 1


def test_the_account_takes_no_key_and_nothing_below_tls_1_2() -> None:
    found = account()

    assert found["disableLocalAuth"] is True
    assert found["disableKeyBasedMetadataWriteAccess"] is True
    assert found["minimalTlsVersion"] == "Tls12"


def test_the_account_lives_in_three_different_regions_in_the_order_given() -> None:
    locations = account()["locations"]

    assert [place["failoverPriority"] for place in locations] == [0, 1, 2]
    assert len({place["locationName"] for place in locations}) == 3


def test_every_region_that_processes_holds_the_journal() -> None:
    regions: list[Any] = [{"name": name, "location": name} for name in ("eastus2", "elsewhere")]

    locations = deployment(regions=regions).module("journal").value("locations")

    assert locations == ["eastus2", "westus3", "centralus", "elsewhere"]


@pytest.mark.parametrize(
    ("template", "name"), [(deployment(), "journalLocations"), (journal(), "locations")]
)
def test_fewer_than_three_regions_are_refused_by_the_parameter(
    template: Template, name: str
) -> None:
    least = template.bicep.of(Kind.PARAMETER)[name].decorators["minLength"]

    assert least
    assert text(least) == "3"
