"""The journal in Azure: one write region, strong, three regions, the containers of one machine."""

from tests.infra.parity import azure_containers, last, local_config, local_containers
from tests.infra.snapshots import Resource, Resources, of_type, only, regions_of


def account_of(resources: Resources) -> Resource:
    return only(resources, "Microsoft.DocumentDB/databaseAccounts")


def test_containers_in_azure_equal_the_local_containers_and_ledgers_lie_in_one_like_the_journal(
    resources: Resources,
) -> None:
    local = local_containers(local_config())
    ledgers = {} if resources.name == "default" else {"ledgers": local["journal"]}

    assert azure_containers(resources) == local | ledgers


def test_what_nobody_uses_of_a_container_is_scaled_away(resources: Resources) -> None:
    kind = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"
    most = {
        last(one["name"]): one["properties"]["options"]["autoscaleSettings"]["maxThroughput"]
        for one in of_type(resources, kind)
    }

    assert most.pop("leases") == 1_000
    assert {*most.values()} == {4_000}


def test_the_account_is_strong_with_a_single_write_region_that_fails_over(
    resources: Resources,
) -> None:
    found = account_of(resources)["properties"]
    moves = resources.name != "other"

    assert found["consistencyPolicy"] == {"defaultConsistencyLevel": "Strong"}
    assert found["enableMultipleWriteLocations"] is False
    assert found["enableAutomaticFailover"] is True
    # Each partition by itself, unless that is switched off.
    capabilities = [{"name": "EnablePerPartitionAutomaticFailover"}] if moves else []
    assert found["capabilities"] == capabilities


def test_the_account_lives_in_three_regions_in_order_and_in_all_that_process(
    resources: Resources,
) -> None:
    locations = account_of(resources)["properties"]["locations"]
    names = [place["locationName"] for place in locations]

    assert [place["failoverPriority"] for place in locations] == [*range(len(names))]
    assert len({*names}) == len(names) >= 3
    apps = [only(resources, "Microsoft.Web/sites", name) for name in regions_of(resources)]
    assert {app["location"] for app in apps} <= {*names}


def test_the_journal_is_backed_up_all_the_time_and_locked_unless_that_is_switched_off(
    resources: Resources,
) -> None:
    locks = of_type(resources, "Microsoft.Authorization/locks")

    assert account_of(resources)["properties"]["backupPolicy"] == {
        "type": "Continuous",
        "continuousModeProperties": {"tier": "Continuous7Days"},
    }
    assert bool(locks) == (resources.name != "other")
    for lock in locks:
        assert lock["properties"]["level"] == "CanNotDelete"
        assert lock["id"].startswith(f"{account_of(resources)['id']}/providers/")


def test_the_journal_is_in_a_group_that_holds_nothing_else(resources: Resources) -> None:
    kinds = {one["type"] for one in resources if "rg-trial-journal/" in one["id"]}

    assert "Microsoft.DocumentDB/databaseAccounts" in kinds
    # Who may look at its metrics, its lock and its record.
    assert {kind for kind in kinds if not kind.startswith("Microsoft.DocumentDB/")} <= {
        "Microsoft.Authorization/locks",
        "Microsoft.Authorization/roleAssignments",
        "Microsoft.Insights/diagnosticSettings",
    }
