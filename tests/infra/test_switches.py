"""What the switches of main.bicep turn on, and what keeps the journal."""

import re
from typing import Any
from uuid import UUID

import pytest

from shared.domain.access import Right
from tests.infra.bicep import INFRA, Kind
from tests.infra.evaluation import Template
from tests.infra.parity import (
    EVERYTHING,
    app_settings,
    deployment,
    load,
    region_of,
)

REGIONS = ("east", "west")


@pytest.mark.parametrize("switch", [False, True])
def test_zones_are_a_switch_for_all_that_has_them(switch: bool) -> None:
    main = deployment(zoneRedundant=switch)
    places = main.module("journal").resource("account")["properties"]["locations"]

    assert [place["isZoneRedundant"] for place in places] == [switch] * 3
    for region in main.modules("region"):
        assert region.resource("plan")["properties"]["zoneRedundant"] is switch
        assert region.resource("storage")["sku"]["name"] == "Standard_ZRS"


def test_each_region_has_a_storage_account_of_its_own_over_zones() -> None:
    places: list[Any] = [{"name": n, "location": f"{n}-place"} for n in ("east", "west", "north")]
    main = deployment(regions=places)
    accounts = [region.resource("storage")["name"] for region in main.modules("region")]

    assert len({*accounts}) == len(places)
    for name, account in zip(("east", "west", "north"), accounts, strict=True):
        region, settings = region_of(name, main), app_settings(region_of(name, main))
        config = region.resource("app")["properties"]["functionAppConfig"]
        used = {value for one, value in settings.items() if one.startswith("AzureWebJobsStorage__")}
        addresses = {str(one) for one in used if "primaryEndpoints" in str(one)}
        assert {one.partition(".properties")[0].strip("<") for one in addresses} == {account}
        assert len(addresses) == 3
        assert account in config["deployment"]["storage"]["value"]
    assert deployment(storageSku="Standard_LRS").modules("region")[0].resource("storage")[
        "sku"
    ] == {"name": "Standard_LRS"}


def test_the_journal_is_backed_up_all_the_time_and_locked() -> None:
    journal = deployment().module("journal")
    backup = journal.resource("account")["properties"]["backupPolicy"]

    assert backup == {
        "type": "Continuous",
        "continuousModeProperties": {"tier": "Continuous7Days"},
    }
    assert journal.resource("lock")["properties"]["level"] == "CanNotDelete"
    assert journal.resource("lock")["scope"] == journal.value("account")
    assert deployment(lockJournal=False).module("journal").resources("lock") == []


def test_the_journal_is_in_a_group_that_holds_nothing_else() -> None:
    main = deployment(**EVERYTHING)
    bodies = {name: main.worked_out(it) for name, it in main.bicep.of(Kind.MODULE).items()}
    group = main.value("journalGroup")
    in_group = {
        name
        for name, body in bodies.items()
        if group in [one["scope"] for one in (body if isinstance(body, list) else [body])]
    }

    assert in_group == {"journal", "journalAccess", "journalBudget"}
    assert main.output("LOCKSTEP_JOURNAL_GROUP") != main.output("AZURE_RESOURCE_GROUP")
    lock = str(main.module("journal").resource("lock")["name"])
    assert str(main.output("LOCKSTEP_LOCK")).endswith(f"/locks/{lock}")


def test_front_door_asks_every_region_for_its_health() -> None:
    front = deployment(**EVERYTHING).module("front")
    probe = front.resource("regions")["properties"]["healthProbeSettings"]
    origins = {str(one.body["properties"]["hostName"]) for one in front.resources("origin")}

    assert (probe["probePath"], probe["probeRequestType"]) == ("/api/health", "GET")
    assert len(origins) == len(REGIONS)


# The zone in which the endpoint of each part of a resource is found.
ZONES = {
    "Sql": "privatelink.documents.azure.com",
    "namespace": "privatelink.servicebus.windows.net",
    "blob": "privatelink.blob.core.windows.net",
    "queue": "privatelink.queue.core.windows.net",
    "table": "privatelink.table.core.windows.net",
}


def open_to_all(template: Template) -> set[str]:
    kinds = ("DocumentDB/databaseAccounts", "ServiceBus/namespaces", "Storage/storageAccounts")
    return {
        one.declaration.name
        for one in template.resources()
        if one.type.removeprefix("Microsoft.") in kinds
        and one.body["properties"].get("publicNetworkAccess") != "Disabled"
    }


def test_a_private_network_closes_everything_to_all_others() -> None:
    main = deployment(privateNetwork=True)

    for template in (main.module("journal"), *main.modules("region")):
        assert open_to_all(template) == set()
    for name in REGIONS:
        network = region_of(name, main, "network")
        subnets = network.resource("network")["properties"]["subnets"]
        (apps,) = (one["properties"] for one in subnets if one["name"] == "apps")
        assert "'Microsoft.App/environments'" in str(apps)
        app = region_of(name, main).resource("app")["properties"]
        assert app["virtualNetworkSubnetId"] == network.output("appSubnetId")


@pytest.mark.parametrize("name", REGIONS)
def test_in_a_private_network_every_part_has_an_endpoint_that_is_found_in_its_zone(
    name: str,
) -> None:
    private = region_of(name, deployment(privateNetwork=True), "endpoints")
    targets = [str(one.body) for one in private.resources("endpoints")]
    records = [str(one.body) for one in private.resources("records")]

    found = [
        (*re.findall(r"'groupIds': \['(\w+)'\]", one), *re.findall(r"source='(.+)\.id'", record))
        for one, record in zip(targets, records, strict=True)
    ]

    # A region sends to the namespace of each.
    assert sorted(found) == sorted([*ZONES.items(), ("namespace", ZONES["namespace"])])
    assert len(private.resources("links")) == len(ZONES)


def test_without_a_private_network_there_is_none() -> None:
    main = deployment()
    assert main.modules("network") == main.modules("endpoints") == []
    assert open_to_all(main.module("journal")) == {"account"}
    assert open_to_all(region_of("east", main)) == {"namespace", "storage"}


@pytest.mark.parametrize("authentication", ["entra", "both"])
def test_where_the_app_takes_tokens_the_platform_checks_them_first(authentication: str) -> None:
    main = deployment(authentication=authentication, clientId="c")
    for region in main.modules("region"):
        found = region.resource("tokens")["properties"]
        entra = found["identityProviders"]["azureActiveDirectory"]
        assert found["platform"]["enabled"] is True
        assert found["globalValidation"] == {
            "requireAuthentication": True,
            "unauthenticatedClientAction": "Return401",
            "excludedPaths": ["/api/health"],
        }
        assert found["identityProviders"].keys() == {"azureActiveDirectory"}
        assert entra["registration"]["clientId"] == "c"
        assert "subscription().tenantId" in str(entra["registration"]["openIdIssuer"])
        assert entra["validation"]["allowedAudiences"] == ["c", "api://c"]
        assert region.resource("settings")["dependsOn"] == [region.value("tokens")]
        assert app_settings(region)["LOCKSTEP_AUTHENTICATION"] == authentication
    assert region_of("east").resources("tokens") == []


def test_tokens_for_no_application_end_the_deployment_before_anything_is_created() -> None:
    with pytest.raises(IndexError):
        deployment(authentication="entra").modules("region")


def test_the_application_has_the_rights_of_the_routes_as_roles() -> None:
    application = load(INFRA / "application.json")
    roles = application["appRoles"]

    assert [role["value"] for role in roles] == [*Right]
    assert len({UUID(role["id"]) for role in roles}) == len(roles)
    assert all(role["allowedMemberTypes"] == ["User", "Application"] for role in roles)
    # Tokens of this version name the client id as their audience, and the issuer that is set.
    assert application["api"]["requestedAccessTokenVersion"] == 2


def test_without_an_address_there_are_no_alerts_and_without_an_amount_no_budget() -> None:
    main = deployment()

    for name in ("watch", "budget", "journalBudget", "front"):
        assert main.modules(name) == []


def test_each_switch_turns_something_on() -> None:
    plain = deployment()

    assert EVERYTHING.keys() <= plain.bicep.of(Kind.PARAMETER).keys()
    assert all(plain.value(name) != value for name, value in EVERYTHING.items())
