"""Every resource that would be deployed is what Azure's published types allow."""

import re
from functools import cache

import pytest

from tests.infra.bicep import Kind
from tests.infra.evaluation import Template, Value
from tests.infra.parity import EVERYTHING, ROOT, changed, deployment
from tests.infra.published import findings, load_published, select, type_findings

pytestmark = pytest.mark.slow


PUBLISHED = load_published()
PAGE = (ROOT / "docs/deploy.md").read_text(encoding="utf-8")
REGIONS = ("east", "west")


def templates(main: Template) -> dict[str, Template]:
    """Every file as it is deployed, by its module's name; of a list with the region before it."""
    found, places = {"main": main}, main.value("names")
    assert isinstance(places, list)
    for name in main.bicep.of(Kind.MODULE):
        modules = main.modules(name)
        if len(modules) == 1:
            found[name] = modules[0]
        elif modules:
            found |= {f"{place} {name}": one for place, one in zip(places, modules, strict=True)}
    return found


@cache
def everything() -> dict[str, Template]:
    """Every file with all switches on; nobody may change what this returns."""
    return templates(deployment(**EVERYTHING))


def test_a_third_region_is_what_the_published_types_allow() -> None:
    places = deployment().value("regions")
    (north,) = re.findall(r"^ +\{ name: '(north)', location: '(\w+)' \}$", PAGE, re.MULTILINE)
    assert isinstance(places, list)
    regions = [*places, dict(zip(("name", "location"), north, strict=True))]

    deployed = templates(deployment(**EVERYTHING, regions=regions))

    each = ("region", "access", "watch", "network", "endpoints", "producersAccess")
    assert {f"north {name}" for name in each} <= deployed.keys()
    assert type_findings(deployed.values(), PUBLISHED) == []


@pytest.mark.parametrize("switches", [{}, {"primary": "west"}, EVERYTHING])
def test_every_resource_is_what_the_published_types_allow(switches: dict[str, Value]) -> None:
    deployed = templates(deployment(**switches))

    always = {
        *("main", "journal", "journalAccess"),
        *("east region", "west region", "east access", "west access"),
    }
    switched = {"people", "front", "budget", "journalBudget"}
    for name in ("watch", "network", "endpoints", "producersAccess"):
        switched |= {f"{region} {name}" for region in REGIONS}
    assert deployed.keys() == always | (switched if "emails" in switches else set())
    assert type_findings(deployed.values(), PUBLISHED) == []


@pytest.mark.parametrize(
    ("where", "old", "new", "said"),
    [
        (
            "east region",
            "Microsoft.Storage/storageAccounts@2023-05-01'",
            "Microsoft.Storage/storageAccounts@2023-05-02'",
            "region.bicep: storage has a type that is not published",
        ),
        (
            "east access",
            "Microsoft.Insights/components@2020-02-02' existing",
            "Microsoft.Insights/component@2020-02-02' existing",
            "access.bicep: insights has a type that is not published",
        ),
        (
            "east region",
            "lockDuration:",
            "lockLength:",
            "queue.properties.lockLength is no property",
        ),
        ("east region", "httpsOnly:", "HttpsOnly:", "app.properties.HttpsOnly is no property"),
        ("east region", "kind: 'StorageV2'", "", "storage.kind is required and missing"),
        (
            "east region",
            "kind: 'StorageV2'",
            "kind: 'StorageV3'",
            "storage.kind is 'StorageV3', none of",
        ),
        (
            "east region",
            "requiresSession: true",
            "requiresSession: 'true'",
            "is 'true', not a boolean",
        ),
        (
            "east region",
            "maxDeliveryCount: 750",
            "maxDeliveryCount: '750'",
            "is '750', not an integer",
        ),
        ("east region", "retentionInDays: 30", "retentionInDays: true", "is True, not an integer"),
        (
            "east region",
            "lockDuration: 'PT30S'",
            "lockDuration: 30",
            "lockDuration is 30, not a string",
        ),
        (
            "east region",
            "requiresSession: true",
            "requiresSession: true\n    messageCount: 1",
            "queue.properties.messageCount is read-only",
        ),
        (
            "east region",
            "'st${region}${token}'",
            "'storage-${region}-${token}'",
            "outside its limits",
        ),
        ("east region", "'lockstep-errors'", "''", "errorQueue.name is 0 characters long"),
        (
            "east region",
            "properties: { publicAccess: 'None' }",
            "properties: 'None'",
            "packages.properties is 'None', not an object",
        ),
        (
            "east region",
            "  name: 'default'",
            "  name: 'main'",
            "blobs.name is 'main', not 'default'",
        ),
        (
            "east region",
            "name: 'appsettings'",
            "name: 'settings'",
            "settings.name is 'settings', none of",
        ),
        (
            "east region",
            "LOCKSTEP_HANDLER_SECONDS: '60'",
            "LOCKSTEP_HANDLER_SECONDS: 60",
            "settings.properties.LOCKSTEP_HANDLER_SECONDS is 60, not a string",
        ),
        (
            "journal",
            "paths: ['/session']",
            "paths: '/session'",
            "partitionKey.paths is '/session', not an array",
        ),
        (
            "east network",
            "serviceName: 'Microsoft.App/environments'",
            "service: 'Microsoft.App/environments'",
            "delegations[0].properties.service is no property",
        ),
        (
            "east endpoints",
            "groupIds: [target.part]",
            "groupIds: target.part",
            "groupIds is 'Sql', not an array",
        ),
        ("front", "probeRequestType: 'GET'", "probeRequestType: 1", "probeRequestType is 1, none"),
        (
            "east watch",
            "severity: one.severity",
            "severity: 'high'",
            "severity is 'high', not an integer",
        ),
        (
            "journal",
            "failoverPriority: priority",
            "failoverPriority: -1",
            "locations[0].failoverPriority is -1, outside its limits",
        ),
    ],
)
def test_a_planted_error_is_named(where: str, old: str, new: str, said: str) -> None:
    broken = changed(everything()[where], old, new)

    found = type_findings([broken], PUBLISHED)

    assert any(said in sentence for sentence in found), found


def test_a_name_that_breaks_the_published_pattern_is_named() -> None:
    pattern = {"$type": "StringType", "pattern": "^[a-z0-9]+$"}

    assert list(findings("steast<uniqueString(a, b)>", pattern, ".name", PUBLISHED)) == []
    assert list(findings("st-<uniqueString(a, b)>", pattern, ".name", PUBLISHED)) != []


def test_the_stored_types_are_those_in_use_and_no_more() -> None:
    used = {
        resource.declaration.target
        for template in everything().values()
        for resource in template.resources()
    }

    stored = {found["name"] for found in PUBLISHED if found["$type"] == "ResourceType"}

    assert stored == used
    assert select([PUBLISHED], used) == PUBLISHED


def test_a_type_that_no_file_describes_is_refused_by_name() -> None:
    with pytest.raises(LookupError, match=r"no file describes a\.b/c@2024-01-01"):
        select([PUBLISHED], ["A.B/c@2024-01-01"])
