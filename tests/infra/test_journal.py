"""The journal in Azure: one write region, strong, three regions, the containers of one machine."""

import pytest

from tests.infra.bicep import Kind, text
from tests.infra.evaluation import Template, Value
from tests.infra.parity import changed, container_differences, deployment, local_config, section


def journal() -> Template:
    return deployment().module("journal")


def account() -> dict[str, object]:
    return dict(section(journal().resource("account"), "properties"))


def test_containers_in_azure_equal_the_local_containers() -> None:
    assert container_differences(journal(), local_config()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("'/session']", "'/id']", "container journal: partition key is ['/id'] in Azure"),
        ("defaultTtl: -1", "defaultTtl: 60", "container journal: time to live is 60 in Azure"),
        ("{ path: '/pending/[]/?' }", "", "container journal: index paths is"),
        ("leasesName = 'leases'", "leasesName = 'lease'", "container lease is in one place only"),
        ("databaseName = 'lockstep'", "databaseName = 'other'", "database: name is 'other' in"),
    ],
)
def test_a_container_that_differs_is_named(old: str, new: str, said: str) -> None:
    differences = container_differences(changed(journal(), old, new), local_config())

    assert any(said in sentence for sentence in differences), differences


def test_ledgers_of_producers_outside_lie_in_a_container_like_the_journal() -> None:
    config = local_config()
    (like,) = (one for one in config["Cosmos"]["Containers"] if one["Name"] == "journal")
    config["Cosmos"]["Containers"].append({**like, "Name": "ledgers"})

    with_producers = deployment(producers=["22222222-2222-2222-2222-222222222222"])
    assert container_differences(with_producers.module("journal"), config) == []
    named = deployment(ledgersName="ledgers")
    assert container_differences(named.module("journal"), config) == []


def test_the_account_is_strong_with_a_single_write_region_that_fails_over() -> None:
    found = account()

    assert found["consistencyPolicy"] == {"defaultConsistencyLevel": "Strong"}
    assert found["enableMultipleWriteLocations"] is False
    assert found["enableAutomaticFailover"] is True


def test_the_account_takes_no_key_and_nothing_below_tls_1_2() -> None:
    found = account()

    assert found["disableLocalAuth"] is True
    assert found["disableKeyBasedMetadataWriteAccess"] is True
    assert found["minimalTlsVersion"] == "Tls12"


def test_the_account_lives_in_three_different_regions_in_the_order_given() -> None:
    locations = account()["locations"]

    assert isinstance(locations, list)
    assert [place["failoverPriority"] for place in locations] == [0, 1, 2]
    assert len({place["locationName"] for place in locations}) == 3


def test_every_region_that_processes_holds_the_journal() -> None:
    regions: list[Value] = [{"name": name, "location": name} for name in ("eastus2", "elsewhere")]

    locations = deployment(regions=regions).module("journal").value("locations")

    assert locations == ["eastus2", "westus3", "centralus", "elsewhere"]


@pytest.mark.parametrize(
    ("template", "name"), [(deployment(), "journalLocations"), (journal(), "locations")]
)
def test_fewer_than_three_regions_are_refused_by_the_parameter(
    template: Template, name: str
) -> None:
    least = template.bicep.of(Kind.PARAMETER)[name].decorators["minLength"]

    assert least is not None
    assert int(text(least)) == 3
