"""What the switches of main.bicep turn on, and what keeps the journal."""

from tests.infra.bicep import Kind, read
from tests.infra.evaluation import Value
from tests.infra.parity import (
    EVERYTHING,
    ROOT,
    deployment,
    region_of,
    section,
)

RUNBOOK = ROOT / "docs" / "runbook.md"
# Headings of the runbook that are no symptom, so that nothing can tell of them.
NO_SYMPTOM = {
    "Open the operations page",
    "Compare a source with the journal",
    "Add or remove a region",
    "Change the preferred region",
}


def test_zones_are_a_switch_for_all_that_has_them() -> None:
    for switch in (False, True):
        main = deployment(zoneRedundant=switch)
        east = region_of("east", main)
        places = section(main.module("journal").resource("account"), "properties")["locations"]
        assert isinstance(places, list)
        assert {section(place)["isZoneRedundant"] for place in places} == {switch}
        assert section(east.resource("plan"), "properties")["zoneRedundant"] is switch
        sku = section(east.resource("storage"), "sku")["name"]
        assert sku == ("Standard_ZRS" if switch else "Standard_LRS")


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


def test_front_door_asks_every_region_for_its_health() -> None:
    front = deployment(**EVERYTHING).module("front")
    probe = section(front.resource("regions"), "properties", "healthProbeSettings")
    origins = [section(one.body, "properties")["hostName"] for one in front.resources("origin")]

    assert (probe["probePath"], probe["probeRequestType"]) == ("/api/health", "GET")
    assert len(origins) == len(set(map(str, origins))) == 2


def symptoms_of(names: tuple[str, ...]) -> list[dict[str, Value]]:
    found: list[dict[str, Value]] = []
    for watch in deployment(**EVERYTHING).modules("watch"):
        for name in names:
            listed = watch.value(name)
            assert isinstance(listed, list)
            found += [section(one) for one in listed]
    return found


def test_each_symptom_of_the_runbook_has_an_alert_in_every_region_and_no_alert_has_none() -> None:
    headings = {
        line.removeprefix("## ")
        for line in RUNBOOK.read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    }
    told = [str(one["symptom"]) for one in symptoms_of(("symptoms", "brokerSymptoms"))]

    assert headings >= NO_SYMPTOM
    assert sorted(told) == sorted([*(headings - NO_SYMPTOM)] * 2)


def test_alerts_and_workbook_ask_for_metrics_that_exist() -> None:
    telemetry = (ROOT / "docs" / "telemetry.md").read_text(encoding="utf-8")
    for one in symptoms_of(("symptoms",)):
        parts = str(one["query"]).split('"')
        assert parts[0].split()[0] in {"AppRequests", "AppTraces", "AppMetrics"}
        if parts[0].startswith("AppMetrics"):
            assert f"`{parts[1]}`" in telemetry


def test_the_workbook_shows_every_symptom_that_is_asked_for() -> None:
    for watch in deployment(**EVERYTHING).modules("watch"):
        shown = str(section(watch.resource("workbook"), "properties")["serializedData"])
        listed = watch.value("symptoms")
        assert isinstance(listed, list)
        assert len(listed) == shown.count("KqlItem/1.0")


def test_without_an_address_there_are_no_alerts_and_without_an_amount_no_budget() -> None:
    main = deployment()

    for name in ("watch", "budget", "journalBudget", "front"):
        assert main.modules(name) == []


def test_each_switch_turns_something_on() -> None:
    plain = read(deployment().bicep.path).of(Kind.PARAMETER)

    assert EVERYTHING.keys() <= plain.keys()
    assert all(deployment().value(name) != value for name, value in EVERYTHING.items())
