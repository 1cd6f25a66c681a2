"""The settings in Azure are the ones of one machine, and the ones the code reads."""

import re
from typing import Any

import pytest

from shared.settings import SETTINGS
from tests.infra.bicep import INFRA
from tests.infra.evaluation import Unknown
from tests.infra.parity import (
    EVERYTHING,
    PLATFORM_SETTINGS,
    ROOT,
    access_of,
    app_settings,
    deployment,
    expected_settings,
    grants,
    load,
    local_config,
    region_of,
)

REGIONS = ("east", "west")

# Values that name the same thing in both places; delays and schedules may differ.
SHARED = (
    *("REGION", "REGIONS", "QUEUE", "OUTPUT_QUEUE", "ERROR_QUEUE"),
    *("DATABASE", "JOURNAL", "LEASES"),
)


@pytest.mark.parametrize("region", REGIONS)
def test_settings_in_azure_equal_the_settings_of_the_local_hosts(region: str) -> None:
    found, local = app_settings(region_of(region)), local_config()["Hosts"]["Values"]

    assert found.keys() == expected_settings(local)
    for name in (f"LOCKSTEP_{one}" for one in SHARED):
        assert found[name] == local[name].replace("{region}", region)
    assert all(isinstance(value, str | Unknown) for value in found.values())


@pytest.mark.parametrize("region", REGIONS)
def test_settings_in_azure_are_the_settings_the_code_declares(region: str) -> None:
    in_azure = app_settings(region_of(region)).keys() - PLATFORM_SETTINGS
    declared = {setting.name for setting in SETTINGS} | {f"ServiceBus_{name}" for name in REGIONS}

    assert {name.partition("__")[0] for name in in_azure} == declared


@pytest.mark.parametrize("region", REGIONS)
def test_each_app_reaches_both_namespaces_by_their_own_names(region: str) -> None:
    main = deployment()
    found = app_settings(region_of(region, main))

    for name in REGIONS:
        namespace = region_of(name, main).resource("namespace")["name"]
        address = f"{namespace}.servicebus.windows.net"
        assert found[f"ServiceBus_{name}__fullyQualifiedNamespace"] == address


@pytest.mark.parametrize("region", REGIONS)
def test_every_connection_uses_the_identity_of_its_own_region(region: str) -> None:
    main = deployment()
    found = app_settings(region_of(region, main))
    identity = region_of(region, main).resource("identity")["name"]

    clients = {
        str(value).strip("<>") for name, value in found.items() if name.endswith("__clientId")
    }
    credentials = {value for name, value in found.items() if name.endswith("__credential")}

    assert clients == {f"{identity}.properties.clientId"}
    assert credentials == {"managedidentity"}


@pytest.mark.parametrize(
    ("primary", "regions"), [("", "east,west"), ("east", "east,west"), ("west", "west,east")]
)
def test_the_primary_comes_first_in_both_regions(primary: str, regions: str) -> None:
    main = deployment(primary=primary)

    assert [app_settings(region_of(name, main))["LOCKSTEP_REGIONS"] for name in REGIONS] == [
        regions
    ] * 2


def test_a_primary_that_is_no_region_ends_the_deployment_before_it_creates_anything() -> None:
    with pytest.raises(IndexError):
        deployment(primary="north").value("preference")


def test_a_scheduler_takes_the_place_of_the_storage_of_sagas() -> None:
    main = deployment(durableBackend="scheduler")
    settings = app_settings(region_of("east", main))
    name = str(region_of("east", main).resource("scheduler")["name"])
    prefix = "AzureFunctionsJobHost__extensions__durableTask__storageProvider__"

    assert settings[f"{prefix}type"] == "azureManaged"
    assert str(settings[str(settings[f"{prefix}connectionStringName"])]).startswith(
        f"Endpoint=<{name}.properties.endpoint>;Authentication=ManagedIdentity;ClientID="
    )
    given = {(role, on) for _, role, on in grants(access_of("east", main))}
    assert ("Durable Task Data Contributor", name) in given
    hub = region_of("east", main).resource("taskHub")["name"]
    assert hub == load(ROOT / "host.json")["extensions"]["durableTask"]["hubName"]


@pytest.mark.slow
def test_one_more_region_is_one_more_entry_of_the_list() -> None:
    places: list[Any] = [
        {"name": name, "location": f"{name}-place"} for name in ("east", "west", "north")
    ]
    main = deployment(**{**EVERYTHING, "regions": places})

    for name in ("region", "access", "watch", "network", "endpoints", "producersAccess"):
        assert len(main.modules(name)) == 3
    for name in ("east", "west", "north"):
        settings = app_settings(region_of(name, main))
        assert settings["LOCKSTEP_REGIONS"] == "east,west,north"
        assert "ServiceBus_north__fullyQualifiedNamespace" in settings
        assert str(settings["LOCKSTEP_COSMOS_LOCATIONS"]).startswith(f"{name}-place,")
        senders = {on for _, role, on in grants(access_of(name, main)) if role.endswith("Sender")}
        assert {on.split("-")[1] for on in senders} == {"east", "west", "north"}


def test_every_setting_a_trigger_names_is_set_in_azure() -> None:
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "functions").rglob("*.py")]
    named = {name for source in sources for name in re.findall(r"%(\w+)%", source)}

    assert named
    assert named <= app_settings(region_of("east")).keys()


def test_no_app_setting_is_declared_beside_the_one_list() -> None:
    source = (INFRA / "region.bicep").read_text(encoding="utf-8")

    assert source.count("'appsettings'") == 1
    assert "appSettings" not in source
