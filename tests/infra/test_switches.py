"""What the switches of main.bicep turn on."""

from collections import Counter
from uuid import UUID

from shared.domain.access import Right
from tests.infra.parity import last
from tests.infra.snapshots import (
    INFRA,
    Resources,
    app_settings,
    load,
    of_type,
    only,
    read_outputs,
    read_snapshot,
    regions_of,
)

EVERYTHING, DEFAULT, OTHER = map(read_snapshot, ("everything", "default", "other"))


def test_zones_are_a_switch_for_all_that_has_them(resources: Resources) -> None:
    switch = resources.name == "everything"
    account = only(resources, "Microsoft.DocumentDB/databaseAccounts")["properties"]

    assert {place["isZoneRedundant"] for place in account["locations"]} == {switch}
    plans = of_type(resources, "Microsoft.Web/serverfarms")
    assert {plan["properties"]["zoneRedundant"] for plan in plans} == {switch}


def test_each_region_has_a_storage_account_of_its_own_over_zones(resources: Resources) -> None:
    sku = "Standard_LRS" if resources.name == "other" else "Standard_ZRS"
    for region in regions_of(resources):
        account = only(resources, "Microsoft.Storage/storageAccounts", region)
        settings = app_settings(resources, region)
        used = {value for name, value in settings.items() if name.endswith("ServiceUri")}

        assert account["sku"] == {"name": sku}
        assert account["kind"] == "StorageV2"
        # 24 letters and digits at most; the last 13 are the unique string.
        assert 13 < len(account["name"]) <= 24
        assert account["name"].isalnum()
        assert len(used) == 3
        assert all(f"'{account['id']}'" in value for value in used)


def test_each_switch_turns_something_on() -> None:
    kinds = [Counter(one["type"] for one in found) for found in (DEFAULT, EVERYTHING)]
    new = {kind.removeprefix("Microsoft.") for kind in kinds[1].keys() - kinds[0].keys()}

    assert new == {
        *("Cdn/profiles", "Cdn/profiles/afdEndpoints", "Cdn/profiles/afdEndpoints/routes"),
        *("Cdn/profiles/originGroups", "Cdn/profiles/originGroups/origins"),
        *("Cdn/profiles/securityPolicies", "Network/FrontDoorWebApplicationFirewallPolicies"),
        *("Consumption/budgets", "Insights/diagnosticSettings"),
        *("DurableTask/schedulers", "DurableTask/schedulers/taskHubs"),
        *("Network/privateDnsZones", "Network/privateDnsZones/virtualNetworkLinks"),
        *("Network/privateEndpoints", "Network/privateEndpoints/privateDnsZoneGroups"),
        *("ServiceBus/namespaces/topics", "ServiceBus/namespaces/topics/subscriptions"),
        "Network/virtualNetworks",
    }


def test_without_an_address_nobody_is_told() -> None:
    told = {"scheduledQueryRules", "metricAlerts", "actionGroups", "activityLogAlerts", "webtests"}

    assert not told & {last(one["type"]) for one in OTHER}
    assert told <= {last(one["type"]) for one in DEFAULT}
    assert [read_outputs(name)["LOCKSTEP_ALERTED"] for name in ("other", "everything")] == [
        *("", "somebody@example.com,another@example.com"),
    ]


def test_one_more_region_is_one_more_of_all_that_a_region_has() -> None:
    each = ("Web/sites", "ServiceBus/namespaces", "Insights/actionGroups", "Insights/workbooks")
    for found, count in ((DEFAULT, 2), (EVERYTHING, 3)):
        assert [len(of_type(found, f"Microsoft.{kind}")) for kind in each] == [count] * len(each)
    networks = of_type(EVERYTHING, "Microsoft.Network/virtualNetworks")
    assert len({one["id"].split("/")[4] for one in networks}) == 3


def test_front_door_asks_every_region_for_its_health() -> None:
    probe = only(EVERYTHING, "Microsoft.Cdn/profiles/originGroups")["properties"]
    origins = of_type(EVERYTHING, "Microsoft.Cdn/profiles/originGroups/origins")

    asked = probe["healthProbeSettings"]
    assert (asked["probePath"], asked["probeRequestType"]) == ("/api/health", "GET")
    assert {last(one["name"]) for one in origins} == {*regions_of(EVERYTHING)}
    assert len({one["properties"]["hostName"] for one in origins}) == len(origins)


# The zone in which the endpoint of each part of a resource is found; that of storage follows from
# the cloud that is deployed to.
STORED = "[format('privatelink.{}.{{0}}', environment().suffixes.storage)]"
ZONES = {
    "Sql": "privatelink.documents.azure.com",
    "namespace": "privatelink.servicebus.windows.net",
    **{part: STORED.format(part) for part in ("blob", "queue", "table")},
}


def test_queues_journal_and_storage_are_open_to_networks_unless_there_is_a_private_one(
    resources: Resources,
) -> None:
    state = "Disabled" if resources.name == "everything" else "Enabled"
    kinds = ("DocumentDB/databaseAccounts", "ServiceBus/namespaces", "Storage/storageAccounts")
    found = [one for kind in kinds for one in of_type(resources, f"Microsoft.{kind}")]

    assert len(found) == 2 * len(regions_of(resources)) + 1
    assert {one["properties"]["publicNetworkAccess"] for one in found} == {state}


def test_an_app_goes_out_through_the_subnet_that_is_given_to_its_plan() -> None:
    for region in regions_of(EVERYTHING):
        network = only(EVERYTHING, "Microsoft.Network/virtualNetworks", region)
        subnets = {one["name"]: one["properties"] for one in network["properties"]["subnets"]}
        (delegation,) = subnets["apps"]["delegations"]
        app = only(EVERYTHING, "Microsoft.Web/sites", region)["properties"]

        assert delegation["properties"] == {"serviceName": "Microsoft.App/environments"}
        assert app["virtualNetworkSubnetId"] == f"{network['id']}/subnets/apps"
    without = only(DEFAULT, "Microsoft.Web/sites", "east")["properties"]
    assert without["virtualNetworkSubnetId"] is None


def test_in_a_private_network_every_part_has_an_endpoint_that_is_found_in_its_zone() -> None:
    regions = regions_of(EVERYTHING)
    for region in regions:
        endpoints = of_type(EVERYTHING, "Microsoft.Network/privateEndpoints", region)
        kind = "Microsoft.Network/privateEndpoints/privateDnsZoneGroups"
        found = []
        for endpoint in endpoints:
            (connection,) = endpoint["properties"]["privateLinkServiceConnections"]
            (part,) = connection["properties"]["groupIds"]
            record = only(EVERYTHING, kind, region, f"{endpoint['name']}/default")
            (zone,) = record["properties"]["privateDnsZoneConfigs"]
            found.append((part, zone["properties"]["privateDnsZoneId"]))

        # A region sends to the namespace of each.
        parts = ["Sql", "blob", "queue", "table", *["namespace"] * len(regions)]
        assert sorted(part for part, _ in found) == sorted(parts)
        for part, zone in found:
            assert ZONES[part].strip("[]") in zone, zone
    names = {one["name"] for one in of_type(EVERYTHING, "Microsoft.Network/privateDnsZones")}
    assert names == {*ZONES.values()}


def test_where_the_app_takes_tokens_the_platform_checks_them_first(resources: Resources) -> None:
    client = "33333333-3333-3333-3333-333333333333"
    way = {"default": "keys", "everything": "entra", "other": "both"}[resources.name]
    for region in regions_of(resources):
        assert app_settings(resources, region)["LOCKSTEP_AUTHENTICATION"] == way
        configs = of_type(resources, "Microsoft.Web/sites/config", region)
        tokens = [one["properties"] for one in configs if last(one["name"]) == "authsettingsV2"]
        assert len(tokens) == (way != "keys")
        for found in tokens:
            entra = found["identityProviders"]["azureActiveDirectory"]
            assert found["platform"]["enabled"] is True
            # The app itself refuses who has no token, and sends a browser to sign in.
            assert found["globalValidation"] == {
                "requireAuthentication": False,
                "unauthenticatedClientAction": "AllowAnonymous",
            }
            # People sign in without a secret, by a token that the browser brings.
            assert "clientSecretSettingName" not in entra["registration"]
            assert found["identityProviders"].keys() == {"azureActiveDirectory"}
            assert entra["registration"]["clientId"] == client
            assert "tenantId" in entra["registration"]["openIdIssuer"]
            assert entra["validation"]["allowedAudiences"] == [client, f"api://{client}"]
    # A snapshot does not say what waits for what. Settings are believed after somebody checks.
    assert "dependsOn: [tokens]" in (INFRA / "region.bicep").read_text(encoding="utf-8")


def test_the_application_has_the_rights_of_the_routes_as_roles() -> None:
    application = load(INFRA / "application.json")
    roles = application["appRoles"]

    assert [role["value"] for role in roles] == [*Right]
    assert len({UUID(role["id"]) for role in roles}) == len(roles)
    assert all(role["allowedMemberTypes"] == ["User", "Application"] for role in roles)
    assert application["web"]["implicitGrantSettings"] == {"enableIdTokenIssuance": True}
    # Tokens of this version name the client id as their audience, and the issuer that is set.
    assert application["api"]["requestedAccessTokenVersion"] == 2


def test_a_budget_is_kept_where_there_is_an_amount() -> None:
    budgets = of_type(EVERYTHING, "Microsoft.Consumption/budgets")

    assert {one["properties"]["amount"] for one in budgets} == {500}
