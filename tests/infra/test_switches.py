"""What the switches of main.bicep turn on, and what keeps the journal."""

import json
import re
from collections.abc import Callable, Collection
from functools import partial
from uuid import UUID

import pytest

from shared.domain.access import Right
from tests.infra.bicep import INFRA, Kind, read
from tests.infra.evaluation import Template
from tests.infra.parity import (
    EVERYTHING,
    ROOT,
    app_settings,
    changed,
    deployment,
    load,
    region_of,
    section,
)

REGIONS = ("east", "west")
RUNBOOK = ROOT / "docs" / "runbook.md"
# Headings of the runbook that are no symptom, so that nothing can tell of them.
NO_SYMPTOM = {
    "Open the operations page",
    "Compare a source with the journal",
    "Add or remove a region",
    "Change the preferred region",
}


def zone_breaches(template: Template, *, is_spread: bool) -> list[str]:
    """What of a journal or a region is spread over zones otherwise than the switch says."""
    if template.resources("account"):
        places = section(template.resource("account"), "properties")["locations"]
        assert isinstance(places, list)
        spread = {"account": [section(place)["isZoneRedundant"] for place in places]}
    else:
        plan = section(template.resource("plan"), "properties")["zoneRedundant"]
        sku = section(template.resource("storage"), "sku")["name"]
        spread = {"plan": [plan], "storage": [sku == "Standard_ZRS"]}
    return [name for name, found in spread.items() if {*map(bool, found)} != {is_spread}]


@pytest.mark.parametrize("switch", [False, True])
def test_zones_are_a_switch_for_all_that_has_them(switch: bool) -> None:
    main = deployment(zoneRedundant=switch)
    for template in (main.module("journal"), region_of("east", main), region_of("west", main)):
        assert zone_breaches(template, is_spread=switch) == []


def test_the_journal_is_backed_up_all_the_time_and_locked() -> None:
    journal = deployment().module("journal")
    backup = section(journal.resource("account"), "properties", "backupPolicy")

    assert backup == {
        "type": "Continuous",
        "continuousModeProperties": {"tier": "Continuous7Days"},
    }
    assert section(journal.resource("lock"), "properties")["level"] == "CanNotDelete"
    assert journal.resource("lock")["scope"] == journal.value("account")
    assert deployment(lockJournal=False).module("journal").resources("lock") == []


def test_the_journal_is_in_a_group_that_holds_nothing_else() -> None:
    modules = deployment().bicep.of(Kind.MODULE)
    in_group = {
        name for name, module in modules.items() if module.entries["scope"].text == b"journalGroup"
    }

    assert in_group == {"journal", "journalAccess", "journalBudget"}
    assert deployment().output("LOCKSTEP_JOURNAL_GROUP") != deployment().output(
        "AZURE_RESOURCE_GROUP"
    )
    lock = str(deployment().module("journal").resource("lock")["name"])
    assert str(deployment().output("LOCKSTEP_LOCK")).endswith(f"/locks/{lock}")


def front_breaches(front: Template) -> list[str]:
    """What keeps Front Door from leaving out a region that is down."""
    probe = section(front.resource("regions"), "properties", "healthProbeSettings")
    origins = [section(one.body, "properties")["hostName"] for one in front.resources("origin")]
    breaches = []
    if (probe["probePath"], probe["probeRequestType"]) != ("/api/health", "GET"):
        breaches.append("no region is asked for its health")
    if len({*map(str, origins)}) != len(REGIONS):
        breaches.append("a region has no origin of its own")
    return breaches


def test_front_door_asks_every_region_for_its_health() -> None:
    assert front_breaches(deployment(**EVERYTHING).module("front")) == []


# The zone in which the endpoint of each part of a resource is found.
ZONES = {
    "Sql": "privatelink.documents.azure.com",
    "namespace": "privatelink.servicebus.windows.net",
    "blob": "privatelink.blob.core.windows.net",
    "queue": "privatelink.queue.core.windows.net",
    "table": "privatelink.table.core.windows.net",
}


def open_to_all(template: Template) -> list[str]:
    """The resources that are reached from everywhere."""
    return [
        one.declaration.name
        for one in template.resources()
        if one.type
        in {
            "Microsoft.DocumentDB/databaseAccounts",
            "Microsoft.ServiceBus/namespaces",
            "Microsoft.Storage/storageAccounts",
        }
        and section(one.body, "properties").get("publicNetworkAccess") != "Disabled"
    ]


def network_breaches(network: Template) -> list[str]:
    """What keeps the app from going out through its network."""
    subnets = section(network.resource("network"), "properties")["subnets"]
    assert isinstance(subnets, list)
    given = {str(section(one)["name"]): str(section(one, "properties")) for one in subnets}
    if "'Microsoft.App/environments'" not in given["apps"]:
        return ["the subnet of the app is not given to Flex Consumption"]
    return []


def endpoint_breaches(template: Template) -> list[str]:
    """The parts that are not reached privately, or are looked for in another zone."""
    found: list[tuple[str, str]] = []
    for endpoint, record in zip(
        template.resources("endpoints"), template.resources("records"), strict=True
    ):
        (part,) = re.findall(r"'groupIds': \['(\w+)'\]", str(endpoint.body))
        (zone,) = re.findall(r"source='(.+)\.id'", str(record.body))
        found.append((part, zone))
    links = [str(one.body) for one in template.resources("links")]
    expected = [*ZONES.items(), ("namespace", ZONES["namespace"])]
    breaches = [str(one) for one in sorted({*found} ^ {*expected})]
    if len(found) != len(expected):
        breaches.append("a namespace has no endpoint")
    if len(links) != len(ZONES):
        breaches.append("a zone is not known to the network")
    return breaches


def test_a_private_network_closes_everything_to_all_others() -> None:
    main = deployment(privateNetwork=True)
    assert open_to_all(main.module("journal")) == []
    for index, name in enumerate(REGIONS):
        region, network = region_of(name, main), main.modules("network")[index]
        assert open_to_all(region) == []
        assert (
            network_breaches(network) == endpoint_breaches(main.modules("endpoints")[index]) == []
        )
        subnet = section(region.resource("app"), "properties")["virtualNetworkSubnetId"]
        assert subnet == network.output("appSubnetId")


def test_without_a_private_network_there_is_none() -> None:
    main = deployment()
    assert main.modules("network") == main.modules("endpoints") == []
    assert open_to_all(main.module("journal")) == ["account"]
    assert sorted(open_to_all(region_of("east", main))) == ["namespace", "storage"]


def token_breaches(region: Template) -> list[str]:
    """What lets somebody in without a token, or has the app believe a forged one."""
    found = section(region.resource("tokens"), "properties")
    entra = section(found, "identityProviders", "azureActiveDirectory")
    client = region.value("clientId")
    wanted = {
        "on": section(found, "platform")["enabled"],
        "401": section(found, "globalValidation")["unauthenticatedClientAction"] == "Return401",
        "required": section(found, "globalValidation")["requireAuthentication"],
        "health alone": section(found, "globalValidation")["excludedPaths"] == ["/api/health"],
        "Entra ID alone": section(found, "identityProviders").keys() == {"azureActiveDirectory"},
        "this application": section(entra, "registration")["clientId"] == client,
        "its audience": section(entra, "validation")["allowedAudiences"]
        == [client, f"api://{client}"],
        "its tenant": "subscription().tenantId"
        in str(section(entra, "registration")["openIdIssuer"]),
        "before the app": "dependsOn: [tokens]" in region.bicep.source,
    }
    return [name for name, holds in wanted.items() if not holds]


@pytest.mark.parametrize("authentication", ["entra", "both"])
def test_where_the_app_takes_tokens_the_platform_checks_them_first(authentication: str) -> None:
    main = deployment(authentication=authentication, clientId="c")
    for name in REGIONS:
        region = region_of(name, main)
        assert token_breaches(region) == []
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


TABLES = {"AppRequests", "AppTraces", "AppMetrics", "CDBPartitionKeyStatistics"}
OF_THE_JOURNAL = "A session nears its 20 GB"


def unknown_metrics(watch: Template) -> list[str]:
    """The tables that are not the apps', and the metrics that alerts ask for and no page names."""
    telemetry = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    listed = watch.value("symptoms")
    assert isinstance(listed, list)
    queries = [str(section(one)["query"]) for one in listed]
    asked = [query.split('"')[1] for query in queries if query.startswith("AppMetrics")]
    tables = {query.split()[0] for query in queries}
    return [*(tables - TABLES), *(name for name in asked if f"`{name}`" not in telemetry)]


def symptoms_in(watch: Template, name: str) -> set[str]:
    """The symptoms of one list of the template."""
    listed = watch.value(name)
    assert isinstance(listed, list)
    return {str(section(one)["symptom"]) for one in listed}


def runbook_symptoms() -> set[str]:
    """The headings of the runbook that somebody has to be told of."""
    lines = RUNBOOK.read_text(encoding="utf-8").splitlines()
    headings = {line.removeprefix("## ") for line in lines if line.startswith("## ")}
    assert headings >= NO_SYMPTOM
    return headings - NO_SYMPTOM


def untold_symptoms(watch: Template) -> set[str]:
    """The symptoms of the runbook that have no alert, and the alerts that have no symptom."""
    told = symptoms_in(watch, "symptoms") | symptoms_in(watch, "brokerSymptoms")
    return told ^ runbook_symptoms()


def unshown_symptoms(watch: Template) -> set[str]:
    """The symptoms of the runbook that have no chart, and the charts that have no symptom.

    What the broker counts stands among the metrics of its namespace, so it needs no chart.
    """
    data = section(watch.resource("workbook"), "properties")["serializedData"]
    charts = [section(one, "content") for one in json.loads(str(data))["items"]]
    shown = {str(one["title"]) for one in charts if " | render timechart" in str(one["query"])}
    return (shown | symptoms_in(watch, "brokerSymptoms")) ^ runbook_symptoms()


def test_each_symptom_of_the_runbook_has_an_alert_in_every_region_and_no_alert_has_none() -> None:
    watches = deployment(**EVERYTHING).modules("watch")

    # The journal's record is in the first region's workspace alone.
    assert [untold_symptoms(watch) for watch in watches] == [set(), {OF_THE_JOURNAL}]


def unasked_record(access: Template) -> list[str]:
    """What the alert near 20 GB needs of the journal's record, and does not find."""
    record = section(access.resource("record"), "properties")
    logs = record["logs"]
    assert isinstance(logs, list)
    kept = {section(log)["category"] for log in logs if section(log)["enabled"]}
    is_apart = record.get("logAnalyticsDestinationType") == "Dedicated"
    return sorted({"PartitionKeyStatistics"} - kept) + ([] if is_apart else ["a table of its own"])


def test_the_alert_near_20_gb_finds_the_record_that_it_asks_for() -> None:
    main = deployment(**EVERYTHING)
    assert unasked_record(main.module("journalAccess")) == []
    without = deployment(**{**EVERYTHING, "keepRecord": False}).modules("watch")
    assert [untold_symptoms(watch) for watch in without] == [{OF_THE_JOURNAL}] * len(REGIONS)


def test_alerts_and_workbook_ask_for_metrics_that_exist() -> None:
    for watch in deployment(**EVERYTHING).modules("watch"):
        assert unknown_metrics(watch) == []


def test_the_workbook_shows_every_symptom_of_the_runbook_that_the_broker_does_not_count() -> None:
    watches = deployment(**EVERYTHING).modules("watch")

    assert [unshown_symptoms(watch) for watch in watches] == [set(), {OF_THE_JOURNAL}]


def test_without_an_address_there_are_no_alerts_and_without_an_amount_no_budget() -> None:
    main = deployment()

    for name in ("watch", "budget", "journalBudget", "front"):
        assert main.modules(name) == []


def test_each_switch_turns_something_on() -> None:
    plain = read(deployment().bicep.path).of(Kind.PARAMETER)

    assert EVERYTHING.keys() <= plain.keys()
    assert all(deployment().value(name) != value for name, value in EVERYTHING.items())


@pytest.mark.parametrize(
    ("check", "module", "old", "new"),
    [
        (
            partial(zone_breaches, is_spread=True),
            "journal",
            "isZoneRedundant: zoneRedundant",
            "isZoneRedundant: false",
        ),
        (
            partial(zone_breaches, is_spread=True),
            "region",
            "zoneRedundant: zoneRedundant",
            "zoneRedundant: false",
        ),
        (
            partial(zone_breaches, is_spread=True),
            "region",
            "zoneRedundant ? 'Standard_ZRS'",
            "zoneRedundant ? 'Standard_GRS'",
        ),
        (front_breaches, "front", "'/api/health'", "'/'"),
        (token_breaches, "region", "'Return401'", "'AllowAnonymous'"),
        (token_breaches, "region", "['/api/health']", "['/api/*']"),
        (token_breaches, "region", "'api://${clientId}'", "'api://lockstep'"),
        (token_breaches, "region", "${subscription().tenantId}", "common"),
        (token_breaches, "region", "  dependsOn: [tokens]\n", ""),
        (front_breaches, "front", "hostName: one.host", "hostName: token"),
        (untold_symptoms, "watch", "symptom: 'Outputs are late'", "symptom: 'Outputs are slow'"),
        (unknown_metrics, "watch", "lockstep.pending.age", "lockstep.pending.years"),
        (unknown_metrics, "watch", "'AppRequests |", "'AppRequest |"),
        (untold_symptoms, "watch", "hasJournalRecord ? journalSymptoms : []", "[]"),
        (unshown_symptoms, "watch", "hasJournalRecord ? journalSymptoms : []", "[]"),
        (unshown_symptoms, "watch", "  for one in symptoms:", "  for one in regionSymptoms:"),
        (unshown_symptoms, "watch", "symptom: 'Queues do not drain'", "symptom: 'Queues are full'"),
        (
            unasked_record,
            "journalAccess",
            "PartitionKeyStatistics', enabled: true",
            "PartitionKeyStatistics', enabled: false",
        ),
        (unasked_record, "journalAccess", "logAnalyticsDestinationType: 'Dedicated'", ""),
        (open_to_all, "journal", "isPrivate ? 'Disabled'", "isPrivate ? 'Enabled'"),
        (open_to_all, "region", "    publicNetworkAccess: publicAccess\n    allow", "    allow"),
        (network_breaches, "network", "Microsoft.App/environments", "Microsoft.Web/serverFarms"),
        (endpoint_breaches, "endpoints", "part: 'queue', zone: 3", "part: 'queue', zone: 2"),
        (endpoint_breaches, "endpoints", "part: 'table'", "part: 'file'"),
        (
            endpoint_breaches,
            "endpoints",
            "for (name, index) in zoneNames",
            "for (name, index) in []",
        ),
    ],
)
def test_a_planted_error_is_found(
    check: Callable[[Template], Collection[str]], module: str, old: str, new: str
) -> None:
    sound = deployment(**EVERYTHING).modules(module)[0]
    assert not check(sound)
    assert check(changed(sound, old, new))
