"""What the switches of main.bicep turn on, and what keeps the journal."""

import json
import re
from uuid import UUID

import pytest

from shared.domain.access import Right
from tests.infra.bicep import INFRA, Kind
from tests.infra.evaluation import Template
from tests.infra.parity import (
    EVERYTHING,
    ROOT,
    app_settings,
    deployment,
    load,
    region_of,
)

REGIONS = ("east", "west")
RUNBOOK = ROOT / "docs" / "runbook.md"
# Headings of the runbook that are no symptom, so that nothing can tell of them.
NO_SYMPTOM = {
    "Open the operations page",
    "Compare a source with the journal",
    "Set a run of a feed aside",
    "Add or remove a region",
    "Move or rename a queue, a namespace or a journal",
    "Change the preferred region",
}


@pytest.mark.parametrize("switch", [False, True])
def test_zones_are_a_switch_for_all_that_has_them(switch: bool) -> None:
    main = deployment(zoneRedundant=switch)
    places = main.module("journal").resource("account")["properties"]["locations"]

    assert [place["isZoneRedundant"] for place in places] == [switch] * 3
    for region in main.modules("region"):
        assert region.resource("plan")["properties"]["zoneRedundant"] is switch
        name = "Standard_ZRS" if switch else "Standard_LRS"
        assert region.resource("storage")["sku"]["name"] == name


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


OF_THE_JOURNAL = "A session nears its 20 GB"
# The journal's record is in the first region's workspace alone.
LACKING = [set(), {OF_THE_JOURNAL}]


def symptoms_in(watch: Template, name: str) -> set[str]:
    return {str(one["symptom"]) for one in watch.value(name)}


def runbook_symptoms() -> set[str]:
    """The headings of the runbook that somebody has to be told of."""
    headings = {*re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)}
    assert headings >= NO_SYMPTOM
    return headings - NO_SYMPTOM


def untold_symptoms(watch: Template) -> set[str]:
    """The symptoms of the runbook that have no alert, and the alerts that have no symptom."""
    told = symptoms_in(watch, "symptoms") | symptoms_in(watch, "brokerSymptoms")
    return told ^ runbook_symptoms()


def test_each_symptom_of_the_runbook_has_an_alert_in_every_region_and_no_alert_has_none() -> None:
    watches = deployment(**EVERYTHING).modules("watch")

    assert [untold_symptoms(watch) for watch in watches] == LACKING


def test_the_workbook_shows_every_symptom_of_the_runbook_that_the_broker_does_not_count() -> None:
    """What the broker counts stands among the metrics of its namespace, so it needs no chart."""
    lacking = []
    for watch in deployment(**EVERYTHING).modules("watch"):
        data = watch.resource("workbook")["properties"]["serializedData"]
        charts = [one["content"] for one in json.loads(str(data))["items"]]
        shown = {one["title"] for one in charts if " | render timechart" in one["query"]}
        lacking.append((shown | symptoms_in(watch, "brokerSymptoms")) ^ runbook_symptoms())

    assert lacking == LACKING


def test_the_alert_near_20_gb_finds_the_record_that_it_asks_for() -> None:
    access = deployment(**EVERYTHING).module("journalAccess")
    logs = access.resource("record")["properties"]["logs"]

    assert "PartitionKeyStatistics" in {log["category"] for log in logs if log["enabled"]}
    record = access.resource("record")["properties"]
    assert record["logAnalyticsDestinationType"] == "Dedicated"  # a table of its own
    without = deployment(**{**EVERYTHING, "keepRecord": False}).modules("watch")
    assert [untold_symptoms(watch) for watch in without] == [{OF_THE_JOURNAL}] * len(REGIONS)


def test_partitions_that_are_written_elsewhere_are_told_of_once() -> None:
    main = deployment(**EVERYTHING)
    moved = [watch.resources("moved") for watch in main.modules("watch")]
    without = deployment(**EVERYTHING, partitionFailover=False).modules("watch")

    assert [len(alerts) for alerts in moved] == [1, 0]
    alert = moved[0][0].body["properties"]
    (condition,) = alert["criteria"]["allOf"]
    (dimension,) = condition["dimensions"]
    assert alert["scopes"] == [main.module("journal").output("accountId")]
    assert condition["metricName"] == "PartitionWriteGlobalStatus"
    # The metric counts partitions, by region: one that is written elsewhere is one too many.
    assert (condition["operator"], condition["threshold"]) == ("GreaterThan", 0)
    assert (dimension["name"], dimension["operator"]) == ("Region", "Exclude")
    assert dimension["values"] == [main.module("journal").output("writeRegion")]
    (heading,) = {*re.findall(r'See "(.+?)"', alert["description"])} & runbook_symptoms()
    assert heading in symptoms_in(main.modules("watch")[0], "symptoms")
    assert [watch.resources("moved") for watch in without] == [[], []]


def test_alerts_wait_for_words_that_the_app_logs() -> None:
    places = (
        "functions/triggers/recover.py",
        "functions/triggers/sagas.py",
        "shared/engine/operate/heartbeats.py",
        "shared/engine/operate/compact.py",
    )
    source = "".join((ROOT / place).read_text(encoding="utf-8") for place in places)
    # The one line that is put together.
    logged = source.replace('postponing("sweep")', '"sweep postponed')
    (first, *_) = deployment(**EVERYTHING).modules("watch")
    queries = [str(one["query"]) for one in first.value("symptoms")]
    traces = " ".join(query for query in queries if query.startswith("AppTraces"))

    words = re.findall(r'Message !?has "(.+?)"', traces)

    assert len(words) == 6
    assert [one for one in words if one not in logged] == []


def test_alerts_ask_for_metrics_that_exist_in_the_apps_tables() -> None:
    named = {*re.findall(r"`([\w.]+)`", (ROOT / "docs/telemetry.md").read_text(encoding="utf-8"))}
    for watch in deployment(**EVERYTHING).modules("watch"):
        queries = [str(one["query"]) for one in watch.value("symptoms")]
        asked = {query.split('"')[1] for query in queries if query.startswith("AppMetrics")}
        tables = {query.split()[0] for query in queries}

        assert asked
        assert asked <= named
        of_the_app = {"AppRequests", "AppTraces", "AppMetrics", "AppExceptions"}
        assert tables <= of_the_app | {"CDBPartitionKeyStatistics"}


def test_without_an_address_there_are_no_alerts_and_without_an_amount_no_budget() -> None:
    main = deployment()

    for name in ("watch", "budget", "journalBudget", "front"):
        assert main.modules(name) == []


def test_each_switch_turns_something_on() -> None:
    plain = deployment()

    assert EVERYTHING.keys() <= plain.bicep.of(Kind.PARAMETER).keys()
    assert all(plain.value(name) != value for name, value in EVERYTHING.items())
