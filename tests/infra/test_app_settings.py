"""The settings in Azure are the ones of one machine, and the ones the code reads."""

import re

from shared.settings import SETTINGS
from tests.infra.parity import (
    IDENTITY_SUFFIXES,
    PLATFORM_SETTINGS,
    ROOT,
    expected_settings,
    last,
    local_config,
)
from tests.infra.snapshots import (
    Resources,
    app_settings,
    load,
    of_type,
    only,
    read_snapshot,
    regions_of,
)

# Values that name the same thing in both places; delays and schedules may differ.
SHARED = (
    *("REGION", "REGIONS", "QUEUE", "OUTPUT_QUEUE", "ERROR_QUEUE"),
    *("DATABASE", "JOURNAL", "LEASES"),
)
STORAGE_PROVIDER = "AzureFunctionsJobHost__extensions__durableTask__storageProvider__"


def test_settings_in_azure_equal_the_settings_of_the_local_hosts() -> None:
    resources, local = read_snapshot(), local_config()["Hosts"]["Values"]
    for region in regions_of(resources):
        found = app_settings(resources, region)

        assert found.keys() == expected_settings(local)
        for name in (f"LOCKSTEP_{one}" for one in SHARED):
            assert found[name] == local[name].replace("{region}", region)


def test_settings_in_azure_are_the_settings_the_code_declares(resources: Resources) -> None:
    regions = regions_of(resources)
    declared = {setting.name for setting in SETTINGS} | {f"ServiceBus_{name}" for name in regions}
    for region in regions:
        in_azure = app_settings(resources, region)
        ours = {name for name in in_azure if not name.startswith(STORAGE_PROVIDER)}
        names = {name.partition("__")[0] for name in ours - PLATFORM_SETTINGS - {"Scheduler"}}

        assert names == declared
        assert all(isinstance(value, str) for value in in_azure.values())


def test_each_app_reaches_every_place_by_its_own_name_with_its_own_identity(
    resources: Resources,
) -> None:
    regions = regions_of(resources)
    for region in regions:
        found = app_settings(resources, region)
        identity = only(resources, "Microsoft.ManagedIdentity/userAssignedIdentities", region)["id"]
        clients = [value for name, value in found.items() if name.endswith("__clientId")]
        credentials = {value for name, value in found.items() if name.endswith("__credential")}

        for name in regions:
            namespace = only(resources, "Microsoft.ServiceBus/namespaces", name)["name"]
            address = f"{namespace}.servicebus.windows.net"
            assert found[f"ServiceBus_{name}__fullyQualifiedNamespace"] == address
        assert len(clients) == len(regions) + 2
        assert all(f"'{identity}'" in value for value in clients)
        assert credentials == {"managedidentity"}
        assert {suffix for one in IDENTITY_SUFFIXES.values() for suffix in one} <= {
            name.rpartition("__")[2] for name in found
        }


def test_the_primary_comes_first_in_every_region(resources: Resources) -> None:
    orders = {app_settings(resources, name)["LOCKSTEP_REGIONS"] for name in regions_of(resources)}

    wanted = {"default": "east,west", "everything": "east,west,north", "other": "west,east"}
    assert orders == {wanted[resources.name]}


def test_the_journal_is_asked_for_where_the_app_is_first(resources: Resources) -> None:
    account = only(resources, "Microsoft.DocumentDB/databaseAccounts")["properties"]
    for region in regions_of(resources):
        app = only(resources, "Microsoft.Web/sites", region)
        first, *others = app_settings(resources, region)["LOCKSTEP_COSMOS_LOCATIONS"].split(",")

        assert first == app["location"]
        assert {first, *others} == {one["locationName"] for one in account["locations"]}
        assert len({first, *others}) == len(others) + 1


def test_a_scheduler_takes_the_place_of_the_storage_of_sagas() -> None:
    resources = read_snapshot("everything")
    for region in regions_of(resources):
        settings = app_settings(resources, region)
        scheduler = only(resources, "Microsoft.DurableTask/schedulers", region)
        hub = only(resources, "Microsoft.DurableTask/schedulers/taskHubs", region)
        connection = settings[settings[f"{STORAGE_PROVIDER}connectionStringName"]]

        assert settings[f"{STORAGE_PROVIDER}type"] == "azureManaged"
        assert f"'{scheduler['id']}'" in connection
        assert connection.startswith("[format('Endpoint={0};Authentication=ManagedIdentity;Client")
        host = load(ROOT / "host.json")["extensions"]["durableTask"]
        assert last(hub["name"]) == host["hubName"]
    assert of_type(read_snapshot(), "Microsoft.DurableTask/schedulers") == []
    assert not any(
        one.startswith(STORAGE_PROVIDER) for one in app_settings(read_snapshot(), "east")
    )


def test_spans_are_sampled_on_either_side_and_a_workspace_has_a_cap(resources: Resources) -> None:
    for region in regions_of(resources):
        settings = app_settings(resources, region)
        workspace = only(resources, "Microsoft.OperationalInsights/workspaces", region)
        most = workspace["properties"]["workspaceCapping"]["dailyQuotaGb"]

        # The host's exporter knows no sampler but Microsoft's, and the app has one of its own.
        assert settings["OTEL_TRACES_SAMPLER"] == "microsoft.fixed_percentage"
        assert settings["OTEL_TRACES_SAMPLER_ARG"] == settings["LOCKSTEP_SPAN_RATIO"] == "0.05"
        assert most == (-1 if resources.name == "other" else 5)


def test_every_setting_a_trigger_names_is_set_in_azure() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "functions").rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"%(\w+)%", source)}

    assert named
    assert named <= app_settings(read_snapshot(), "east").keys()


def test_no_app_setting_is_declared_beside_the_one_list(resources: Resources) -> None:
    for app in of_type(resources, "Microsoft.Web/sites"):
        assert "appSettings" not in app["properties"]["siteConfig"]
    lists = [
        one
        for one in of_type(resources, "Microsoft.Web/sites/config")
        if last(one["name"]) == "appsettings"
    ]
    assert len(lists) == len(regions_of(resources))
