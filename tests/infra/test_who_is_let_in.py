"""Who reaches the apps, and what each deployment costs whom: over Microsoft's own snapshots."""

from typing import Any

from tests.infra.snapshots import of_type, read_snapshot


def sites(snapshot: str) -> list[dict[str, Any]]:
    found = of_type(read_snapshot(snapshot), "Microsoft.Web/sites")
    return [one["properties"]["siteConfig"] for one in found]


def test_without_front_door_everybody_reaches_the_apps() -> None:
    for site in sites("default"):
        assert site["ipSecurityRestrictionsDefaultAction"] == "Allow"
        assert site["ipSecurityRestrictions"] == []
    kinds = {one["type"].partition("/")[0] for one in read_snapshot()}
    assert "Microsoft.Cdn" not in kinds


def test_nobody_passes_front_door_by_but_who_is_named() -> None:
    (profile,) = of_type(read_snapshot("everything"), "Microsoft.Cdn/profiles")
    found = sites("everything")

    assert len(found) == 3
    for site in found:
        assert site["ipSecurityRestrictionsDefaultAction"] == "Deny"
        rules = site["ipSecurityRestrictions"]
        assert {one["action"] for one in rules} == {"Allow"}
        assert [(one["tag"], one["ipAddress"]) for one in rules] == [
            ("ServiceTag", "AzureFrontDoor.Backend"),
            # The other regions ask for the health of this one.
            ("ServiceTag", "ApplicationInsightsAvailability"),
            ("Default", "203.0.113.0/24"),
            ("Default", "198.51.100.7/32"),
        ]
        # All profiles of Front Door have these addresses, also those of strangers.
        (header,) = rules[0]["headers"]["x-azure-fdid"]
        assert profile["id"] in header
        assert header.endswith(".frontDoorId]")
        # What is published goes by the door for publishing, from wherever it is.
        assert site["scmIpSecurityRestrictionsUseMain"] is False
        assert site["scmIpSecurityRestrictionsDefaultAction"] == "Allow"


def test_front_door_limits_the_calls_of_an_address_at_each_path() -> None:
    everything = read_snapshot("everything")
    kind = "Microsoft.Network/FrontDoorWebApplicationFirewallPolicies"
    (policy,) = of_type(everything, kind)
    (guard,) = of_type(everything, "Microsoft.Cdn/profiles/securityPolicies")
    (endpoint,) = of_type(everything, "Microsoft.Cdn/profiles/afdEndpoints")
    (rule,) = policy["properties"]["customRules"]["rules"]

    assert (rule["ruleType"], rule["action"]) == ("RateLimitRule", "Block")
    assert policy["properties"]["policySettings"]["customBlockResponseStatusCode"] == 429
    # Standard refuses managed rules.
    assert "managedRules" not in policy["properties"]
    (profile,) = of_type(everything, "Microsoft.Cdn/profiles")
    assert policy["sku"] == profile["sku"] == {"name": "Standard_AzureFrontDoor"}
    said = guard["properties"]["parameters"]
    assert said["wafPolicy"]["id"] == policy["id"]
    assert said["associations"] == [
        {"domains": [{"id": endpoint["id"]}], "patternsToMatch": ["/*"]}
    ]


def test_one_budget_is_for_every_group_and_counts_each_once() -> None:
    everything = read_snapshot("everything")
    groups = {one["name"] for one in of_type(everything, "Microsoft.Resources/resourceGroups")}
    (budget,) = of_type(everything, "Microsoft.Consumption/budgets")
    watched = budget["properties"]["filter"]["dimensions"]

    assert "/resourceGroups/" not in budget["id"]
    assert (watched["name"], watched["operator"]) == ("ResourceGroupName", "In")
    assert len(watched["values"]) == len(groups) == 5
    assert {*watched["values"]} == groups
    assert [*of_type(read_snapshot(), "Microsoft.Consumption/budgets")] == []
