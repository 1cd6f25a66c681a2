"""Who is told of what: an alert for each symptom of the runbook, and each region by the others."""

import json
import re
from typing import Any

import pytest

from tests.infra.evaluation import Template
from tests.infra.parity import EVERYTHING, ROOT, deployment, region_of

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

OF_THE_JOURNAL = "A session nears its 20 GB"
# The journal's record is in the first region's workspace alone.
LACKING = [set(), {OF_THE_JOURNAL}]
QUEUES = {"lockstep", "lockstep-out", "lockstep-errors"}


def runbook_symptoms() -> set[str]:
    """The headings of the runbook that somebody has to be told of."""
    headings = {*re.findall(r"^## (.+)$", RUNBOOK.read_text(encoding="utf-8"), re.MULTILINE)}
    assert headings >= NO_SYMPTOM
    return headings - NO_SYMPTOM


def in_queries(watch: Template) -> set[str]:
    return {str(one["symptom"]) for one in watch.value("symptoms")}


def in_counts(watch: Template) -> set[str]:
    """The symptoms of what the platform counts, asks and says."""
    alerts = watch.resources("counted", "down", "service", "ill")
    texts = [str(one.body["properties"]["description"]) for one in alerts]
    return {symptom for said in texts for symptom in re.findall(r'See "(.+?)"', said)}


def untold_symptoms(watch: Template) -> set[str]:
    """The symptoms of the runbook that have no alert, and the alerts that have no symptom."""
    return (in_queries(watch) | in_counts(watch)) ^ runbook_symptoms()


def counted(watch: Template, metric: str) -> Any:
    """The one rule for a metric, with its condition as `condition`."""
    alerts = [one.body["properties"] for one in watch.resources("counted")]
    found = [one | {"condition": one["criteria"]["allOf"][0]} for one in alerts]
    (only,) = (one for one in found if one["condition"]["metricName"] == metric)
    return only


@pytest.fixture(scope="module")
def main() -> Template:
    """A deployment with every switch on."""
    return deployment(**EVERYTHING)


@pytest.fixture(scope="module")
def watches(main: Template) -> list[Template]:
    return main.modules("watch")


def test_each_symptom_of_the_runbook_has_an_alert_in_every_region_and_no_alert_has_none(
    watches: list[Template],
) -> None:
    assert [untold_symptoms(watch) for watch in watches] == LACKING


def test_the_workbook_shows_every_query(watches: list[Template]) -> None:
    """What the platform counts stands among the metrics of its resource, and needs no chart."""
    for watch in watches:
        data = watch.resource("workbook")["properties"]["serializedData"]
        charts = [one["content"] for one in json.loads(str(data))["items"]]
        assert {one["title"] for one in charts} == in_queries(watch)
        assert len(charts) == len(watch.value("symptoms"))
        assert all(" | render timechart" in one["query"] for one in charts)


def test_the_alert_near_20_gb_finds_the_record_that_it_asks_for(main: Template) -> None:
    record = main.module("journalAccess").resource("record")["properties"]

    assert "PartitionKeyStatistics" in {one["category"] for one in record["logs"] if one["enabled"]}
    assert record["logAnalyticsDestinationType"] == "Dedicated"  # a table of its own
    without = deployment(**{**EVERYTHING, "keepRecord": False}).modules("watch")
    assert [untold_symptoms(watch) for watch in without] == [{OF_THE_JOURNAL}] * len(REGIONS)


@pytest.mark.parametrize(("name", "other"), [("east", "west"), ("west", "east")])
def test_a_region_is_watched_by_the_other_one(main: Template, name: str, other: str) -> None:
    """What tells of it lies elsewhere: the test, its component, the rules and who they mail."""
    watch, watched = region_of(other, main, "watch"), region_of(name, main)
    (asked,) = (one.body for one in watch.resources("asked"))
    (down,) = (one.body["properties"] for one in watch.resources("down"))
    storage = counted(watch, "Availability")

    assert asked["properties"]["Request"]["RequestUrl"] == f"{watched.output('appUrl')}/api/health"
    assert asked["location"] != watched.arguments["location"]
    assert down["criteria"]["componentId"] == region_of(other, main).output("insightsId")
    assert 1 < down["criteria"]["failedLocationCount"] < len(asked["properties"]["Locations"])
    assert storage["scopes"] == [watched.output("storageId")]
    assert down["actions"] == storage["actions"] == [{"actionGroupId": mail_of(watch)}]
    assert name not in str(watch.resource("mail")["name"])


def mail_of(watch: Template) -> Any:
    return watch.resources("counted")[0].body["properties"]["actions"][0]["actionGroupId"]


def test_each_queue_and_its_dead_letters_are_watched(watches: list[Template]) -> None:
    for watch in watches:
        for metric, queues in {
            "ActiveMessages": QUEUES - {"lockstep-errors"},
            "Size": QUEUES,
            "DeadletteredMessages": QUEUES,
            "IncomingMessages": {"lockstep-errors"},
        }.items():
            (dimension,) = counted(watch, metric)["condition"]["dimensions"]
            assert (dimension["name"], {*dimension["values"]}) == ("EntityName", queues)


def test_every_new_report_is_told_and_dead_letters_until_they_are_gone(
    watches: list[Template],
) -> None:
    """A rule that ends by itself tells once, and reports stay in their queue for two weeks."""
    for watch in watches:
        reports, dead = counted(watch, "IncomingMessages"), counted(watch, "DeadletteredMessages")
        assert [one["autoMitigate"] for one in (reports, dead)] == [False, False]
        assert reports["evaluationFrequency"] == reports["windowSize"] == "PT5M"
        assert (reports["condition"]["timeAggregation"], reports["condition"]["threshold"]) == (
            *("Total", 0),
        )
        # A person may need a while for these.
        assert dead["evaluationFrequency"] == "PT1H"


def test_an_app_at_its_limit_is_told_of(main: Template) -> None:
    for name in REGIONS:
        config = region_of(name, main).resource("app")["properties"]["functionAppConfig"]
        most = config["scaleAndConcurrency"]["maximumInstanceCount"]
        alert = counted(region_of(name, main, "watch"), "InstanceCount")["condition"]
        assert (alert["operator"], alert["threshold"]) == ("GreaterThan", most - 1)


def test_the_journal_and_azure_are_told_of_once(main: Template, watches: list[Template]) -> None:
    account = main.module("journal").output("accountId")
    scopes = [
        {str(one.body["properties"]["criteria"]["allOf"][0]["metricName"]) for one in found}
        for watch in watches
        if (
            found := [
                one
                for one in watch.resources("counted")
                if one.body["properties"]["scopes"] == [account]
            ]
        )
    ]

    assert scopes == [
        {"TotalRequests", "ServiceAvailability", "RegionFailover", "PartitionWriteGlobalStatus"}
    ]
    assert [len(watch.resources("service", "ill")) for watch in watches] == [2, 0]


def test_partitions_that_are_written_elsewhere_are_told_of(
    main: Template, watches: list[Template]
) -> None:
    alert = counted(watches[0], "PartitionWriteGlobalStatus")["condition"]
    (dimension,) = alert["dimensions"]

    # The metric counts partitions, by region: one that is written elsewhere is one too many.
    assert (alert["operator"], alert["threshold"]) == ("GreaterThan", 0)
    assert (dimension["name"], dimension["operator"]) == ("Region", "Exclude")
    assert dimension["values"] == [main.module("journal").output("writeRegion")]
    without = deployment(**EVERYTHING, partitionFailover=False).modules("watch")
    assert "PartitionWriteGlobalStatus" not in str([one.value("counts") for one in without])


def test_alerts_ask_for_metrics_that_exist(watches: list[Template]) -> None:
    named = {*re.findall(r"`([\w.]+)`", (ROOT / "docs/telemetry.md").read_text(encoding="utf-8"))}
    for watch in watches:
        queries = [str(one["query"]) for one in watch.value("symptoms")]
        asked = {query.split('"')[1] for query in queries if query.startswith("AppMetrics")}

        assert asked
        assert asked <= named


def test_addresses_are_asked_for_and_none_is_a_word(main: Template) -> None:
    parameters = (ROOT / "infra/main.bicepparam").read_text(encoding="utf-8")
    receivers = main.modules("watch")[0].resource("mail")["properties"]["emailReceivers"]

    # A variable without a default ends the deployment before it begins, by name.
    assert "param emails = readEnvironmentVariable('LOCKSTEP_EMAILS')\n" in parameters
    assert [one["emailAddress"] for one in receivers] == [
        "somebody@example.com",
        "another@example.com",
    ]
    assert main.output("LOCKSTEP_ALERTED") == "somebody@example.com,another@example.com"
    assert deployment(emails="none").output("LOCKSTEP_ALERTED") == ""
