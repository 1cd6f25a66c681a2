"""Who is told of what: an alert for each symptom of the runbook, and each region by the others."""

import json
import re
from typing import Any

import pytest

from tests.infra.parity import ROOT, last
from tests.infra.snapshots import Resource, Resources, of_type, only, read_snapshot, regions_of

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

OF_THE_JOURNAL = "A session nears its 20 GB"
QUEUES = {"lockstep", "lockstep-out", "lockstep-errors"}


@pytest.fixture(params=["default", "everything"])
def told(request: pytest.FixtureRequest) -> Resources:
    """What is created where somebody is told."""
    return read_snapshot(request.param)


def runbook_symptoms() -> set[str]:
    """The headings of the runbook that somebody has to be told of."""
    headings = {*re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)}
    assert headings >= NO_SYMPTOM
    return headings - NO_SYMPTOM


def queries(resources: Resources, region: str) -> dict[str, str]:
    """By query, the symptom that it is of."""
    found = {}
    for rule in of_type(resources, "Microsoft.Insights/scheduledQueryRules", region):
        (condition,) = rule["properties"]["criteria"]["allOf"]
        found[condition["query"]] = rule["properties"]["displayName"].partition(": ")[2]
    return found


def counted(resources: Resources, region: str, metric: str) -> Any:
    """The one rule for a metric, with its condition as `condition`."""
    found = [one["properties"] for one in rules_of(resources, region)]
    criteria = [one | {"condition": one["criteria"].get("allOf", [{}])[0]} for one in found]
    (rule,) = (one for one in criteria if one["condition"].get("metricName") == metric)
    return rule


def rules_of(resources: Resources, region: str) -> list[Resource]:
    return of_type(resources, "Microsoft.Insights/metricAlerts", region)


def test_each_symptom_of_the_runbook_has_an_alert_in_every_region_and_no_alert_has_none(
    told: Resources,
) -> None:
    first, *_ = regions_of(told)
    of_azure = of_type(told, "Microsoft.Insights/activityLogAlerts")
    for region in regions_of(told):
        counts = [*rules_of(told, region), *(of_azure if region == first else [])]
        texts = [one["properties"]["description"] for one in counts]
        found = {symptom for said in texts for symptom in re.findall(r'See "(.+?)"', said)}
        # The journal's record, where there is one, is in the first region's workspace alone.
        records = region == first and told.name == "everything"
        lacking = set() if records else {OF_THE_JOURNAL}

        assert (found | {*queries(told, region).values()}) ^ runbook_symptoms() == lacking


def test_the_workbook_shows_every_query(told: Resources) -> None:
    """What the platform counts stands among the metrics of its resource, and needs no chart."""
    for region in regions_of(told):
        (book,) = (
            one["properties"]
            for one in of_type(told, "Microsoft.Insights/workbooks")
            if one["properties"]["displayName"] == f"Lockstep {region}"
        )
        charts = [one["content"] for one in json.loads(book["serializedData"])["items"]]
        asked = queries(told, region)
        assert [one["title"] for one in charts] == [*asked.values()]
        for query, chart in zip(asked, charts, strict=True):
            assert chart["query"].startswith(query)
            assert chart["query"].endswith(" | render timechart")


def test_the_alert_near_20_gb_finds_the_record_that_it_asks_for() -> None:
    kind = "Microsoft.Insights/diagnosticSettings"
    (record,) = (
        one["properties"]
        for one in of_type(read_snapshot("everything"), kind)
        if "databaseAccounts" in one["id"]
    )

    assert "PartitionKeyStatistics" in {one["category"] for one in record["logs"] if one["enabled"]}
    assert record["logAnalyticsDestinationType"] == "Dedicated"  # a table of its own
    assert of_type(read_snapshot(), kind) == []


def test_a_region_is_watched_by_every_other_one(told: Resources) -> None:
    """What tells of it lies elsewhere: the test, its component, the rules and who they mail."""
    for name in regions_of(told):
        app = only(told, "Microsoft.Web/sites", name)
        for other in {*regions_of(told)} - {name}:
            asked = only(told, "Microsoft.Insights/webtests", name, f"-by-{other}")
            down = only(told, "Microsoft.Insights/metricAlerts", other, f"-down-{name}")
            mail = only(told, "Microsoft.Insights/actionGroups", other)
            insights = only(told, "Microsoft.Insights/components", other)
            (storage,) = (
                one["properties"]
                for one in rules_of(told, other)
                if last(one["properties"]["scopes"][0]).startswith(f"st{name}")
            )

            url = asked["properties"]["Request"]["RequestUrl"]
            assert f"'{app['id']}'" in url
            assert "'{0}/api/health'" in url
            assert asked["location"] == insights["location"] != app["location"]
            places = asked["properties"]["Locations"]
            assert down["properties"]["criteria"]["componentId"] == insights["id"]
            assert down["properties"]["criteria"]["webTestId"] == asked["id"]
            assert 1 < down["properties"]["criteria"]["failedLocationCount"] < len(places)
            assert storage["criteria"]["allOf"][0]["metricName"] == "Availability"
            actions = [{"actionGroupId": mail["id"]}]
            assert down["properties"]["actions"] == storage["actions"] == actions


def test_each_queue_and_its_dead_letters_are_watched(told: Resources) -> None:
    for region in regions_of(told):
        for metric, names in {
            "ActiveMessages": QUEUES - {"lockstep-errors"},
            "Size": QUEUES,
            "DeadletteredMessages": QUEUES,
            "IncomingMessages": {"lockstep-errors"},
        }.items():
            (dimension,) = counted(told, region, metric)["condition"]["dimensions"]
            assert (dimension["name"], {*dimension["values"]}) == ("EntityName", names)


def test_every_new_report_is_told_and_dead_letters_until_they_are_gone(told: Resources) -> None:
    """A rule that ends by itself tells once, and reports stay in their queue for two weeks."""
    for region in regions_of(told):
        reports = counted(told, region, "IncomingMessages")
        dead = counted(told, region, "DeadletteredMessages")
        assert [one["autoMitigate"] for one in (reports, dead)] == [False, False]
        assert reports["evaluationFrequency"] == reports["windowSize"] == "PT5M"
        assert reports["condition"]["timeAggregation"] == "Total"
        assert reports["condition"]["threshold"] == 0
        # A person may need a while for these.
        assert dead["evaluationFrequency"] == "PT1H"


def test_an_app_at_its_limit_is_told_of(told: Resources) -> None:
    for region in regions_of(told):
        app = only(told, "Microsoft.Web/sites", region)["properties"]
        most = app["functionAppConfig"]["scaleAndConcurrency"]["maximumInstanceCount"]
        alert = counted(told, region, "InstanceCount")["condition"]
        assert (alert["operator"], alert["threshold"]) == ("GreaterThan", most - 1)


def test_the_journal_and_azure_are_told_of_by_the_first_region(told: Resources) -> None:
    account = only(told, "Microsoft.DocumentDB/databaseAccounts")["id"]
    first, *others = regions_of(told)
    asked = {
        region: {
            one["properties"]["criteria"]["allOf"][0]["metricName"]
            for one in rules_of(told, region)
            if one["properties"]["scopes"] == [account]
        }
        for region in regions_of(told)
    }

    wanted = {"TotalRequests", "ServiceAvailability", "RegionFailover"}
    assert asked[first] == wanted | {"PartitionWriteGlobalStatus"}
    assert [asked[other] for other in others] == [set()] * len(others)
    alerts = of_type(told, "Microsoft.Insights/activityLogAlerts")
    assert len(alerts) == 2
    mail = only(told, "Microsoft.Insights/actionGroups", first)["id"]
    for alert in alerts:
        actions = alert["properties"]["actions"]
        assert actions == {"actionGroups": [{"actionGroupId": mail}]}


def test_partitions_that_are_written_elsewhere_are_told_of(told: Resources) -> None:
    account = only(told, "Microsoft.DocumentDB/databaseAccounts")["id"]
    first, *_ = regions_of(told)
    alert = counted(told, first, "PartitionWriteGlobalStatus")["condition"]
    (dimension,) = alert["dimensions"]

    # The metric counts partitions, by region: one that is written elsewhere is one too many.
    assert (alert["operator"], alert["threshold"]) == ("GreaterThan", 0)
    assert (dimension["name"], dimension["operator"]) == ("Region", "Exclude")
    (written,) = dimension["values"]
    assert f"'{account}'" in written
    assert written.endswith(".writeLocations[0].locationName]")


def test_alerts_ask_for_metrics_that_exist(told: Resources) -> None:
    named = {*re.findall(r"`([\w.]+)`", (ROOT / "docs/telemetry.md").read_text(encoding="utf-8"))}
    for region in regions_of(told):
        asked = {one.split('"')[1] for one in queries(told, region) if one.startswith("AppMetrics")}

        assert asked
        assert asked <= named


def test_every_rule_is_on_and_mails_each_address(told: Resources) -> None:
    receivers = [
        [one["emailAddress"] for one in mail["properties"]["emailReceivers"]]
        for mail in of_type(told, "Microsoft.Insights/actionGroups")
    ]
    some = ["somebody@example.com"]
    all_of_them = some if told.name == "default" else [*some, "another@example.com"]

    assert receivers == [all_of_them] * len(regions_of(told))
    for region in regions_of(told):
        mail = only(told, "Microsoft.Insights/actionGroups", region)["id"]
        asking = of_type(told, "Microsoft.Insights/scheduledQueryRules", region)
        for rule in [*asking, *rules_of(told, region)]:
            assert rule["properties"]["enabled"] is True
            assert f"'{mail}'" in str(rule["properties"]["actions"])
