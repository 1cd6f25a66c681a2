"""What the Bicep files declare, held against what runs on one machine: `local.config.json`.

Each function returns one sentence per difference; none means that cloud and machine agree on what
it looks at.
"""

import json
from pathlib import Path
from typing import Any

from tests.infra.bicep import INFRA, parse, read
from tests.infra.evaluation import Resource, Template, Value
from tests.infra.rules import GUID, KNOWN_ROLES

ROOT = INFRA.parent

# What takes the place of a connection string where an identity connects, by the placeholder that
# the local value holds.
IDENTITY_SUFFIXES = {
    "{servicebus.": ("fullyQualifiedNamespace", "credential", "clientId"),
    "{cosmos}": ("accountEndpoint", "credential", "clientId"),
}

# Read by the Functions host, not by the application; the local host needs none of them.
PLATFORM_SETTINGS = {
    "AzureWebJobsStorage__blobServiceUri",
    "AzureWebJobsStorage__queueServiceUri",
    "AzureWebJobsStorage__tableServiceUri",
    "AzureWebJobsStorage__credential",
    "AzureWebJobsStorage__clientId",
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
}

# A queue on one machine has no size of its own.
QUOTAS = {"maxSizeInMegabytes"}

# Read by the local host only: where the task hub is. In Azure it is in the app's own storage.
LOCAL_SETTINGS = {"LOCAL_DURABLE_ADDRESS"}

# Values that name the same thing in both places; delays and schedules may differ.
SHARED_VALUES = (
    "LOCKSTEP_REGION",
    "LOCKSTEP_REGIONS",
    "LOCKSTEP_QUEUE",
    "LOCKSTEP_OUTPUT_QUEUE",
    "LOCKSTEP_ERROR_QUEUE",
    "LOCKSTEP_DATABASE",
    "LOCKSTEP_JOURNAL",
    "LOCKSTEP_LEASES",
)


def local_config() -> dict[str, Any]:
    return dict(load(ROOT / "local.config.json"))


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def deployment(**parameters: Value) -> Template:
    """main.bicep as a deployment would see it, with the parameters it requires."""
    given = {"environmentName": "trial", "location": "eastus2", **parameters}
    return Template(read(INFRA / "main.bicep"), given)


# Every switch that adds resources or settings.
EVERYTHING: dict[str, Value] = {
    "authentication": "entra",
    "clientId": "33333333-3333-3333-3333-333333333333",
    "durableBackend": "scheduler",
    "zoneRedundant": True,
    "frontDoor": True,
    "privateNetwork": True,
    "readers": "11111111-1111-1111-1111-111111111111",
    "producers": ["22222222-2222-2222-2222-222222222222"],
    "keepRecord": True,
    "emails": ["somebody@example.com"],
    "monthlyBudget": 500,
    "budgetFrom": "2026-12-01",
}


def region_of(name: str, main: Template | None = None) -> Template:
    """One region's file as a deployment would see it; LookupError if there is no such region."""
    return of_region(name, main, "region")


def access_of(name: str, main: Template | None = None) -> Template:
    """The roles of one region's identity."""
    return of_region(name, main, "access")


def of_region(name: str, main: Template | None, module: str) -> Template:
    whole = main or deployment()
    names = [str(found.arguments["region"]) for found in whole.modules("region")]
    if name not in names:
        raise LookupError(f"no region {name} among {names}")
    return whole.modules(module)[names.index(name)]


def changed(template: Template, old: str, new: str) -> Template:
    """The same deployment of a file in which every old is new; ValueError if there is no old."""
    if old not in template.bicep.source:
        raise ValueError(f"{template.bicep.path.name} holds no {old!r}")
    source = template.bicep.source.replace(old, new)
    return Template(parse(source, template.bicep.path), template.arguments)


def app_settings(region: Template) -> dict[str, Value]:
    return section(region.resource("settings"), "properties")


def section(value: Value, *path: str) -> dict[str, Value]:
    for name in path:
        value = value[name] if isinstance(value, dict) else None
    if not isinstance(value, dict):
        raise TypeError(f"{'.'.join(path)} is not an object")
    return value


def expected_settings(config: dict[str, Any]) -> set[str]:
    """Names the cloud must set for what the local hosts are given."""
    names = set(PLATFORM_SETTINGS)
    for name, value in config["Hosts"]["Values"].items():
        suffixes = [found for mark, found in IDENTITY_SUFFIXES.items() if value.startswith(mark)]
        names |= {f"{name}__{suffix}" for suffix in suffixes[0]} if suffixes else {name}
    return names - LOCAL_SETTINGS


def setting_differences(region: Template, config: dict[str, Any]) -> list[str]:
    """Names of app settings, and the values that name queues, containers and regions."""
    found, expected = app_settings(region), expected_settings(config)
    differences = [f"{name} is not set in Azure" for name in sorted(expected - found.keys())]
    differences += [f"{name} is set in Azure only" for name in sorted(found.keys() - expected)]
    for name in SHARED_VALUES:
        local = config["Hosts"]["Values"][name].replace("{region}", region.arguments["region"])
        if name in found and found[name] != local:
            differences.append(f"{name} is {found[name]!r} in Azure, {local!r} locally")
    return differences


def queue_differences(region: Template, config: dict[str, Any]) -> list[str]:
    """Names and properties of the queues of one region's namespace."""
    declared = {
        str(resource.body["name"]): without_quotas(section(resource.body, "properties"))
        for resource in region.resources()
        if resource.type == "Microsoft.ServiceBus/namespaces/queues"
    }
    expected = local_queues(str(region.arguments["region"]), config)
    differences = [f"queue {name} is in one place only" for name in declared.keys() ^ expected]
    for name in declared.keys() & expected.keys():
        differences += unequal(f"queue {name}", declared[name], expected[name])
    return sorted(differences)


def without_quotas(properties: dict[str, Value]) -> dict[str, Value]:
    return {name: value for name, value in properties.items() if name not in QUOTAS}


def local_queues(region: str, config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spaces = {space["Name"]: space for space in config["UserConfig"]["Namespaces"]}
    return {
        queue["Name"]: {
            key[0].lower() + key[1:]: value for key, value in queue["Properties"].items()
        }
        for queue in spaces[region]["Queues"]
    }


def container_differences(journal: Template, config: dict[str, Any]) -> list[str]:
    """Name, key, time to live and index paths of every container; the database's name."""
    declared = {
        str(resource.body["name"]): container_facts(resource)
        for resource in journal.resources()
        if resource.type == "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"
    }
    expected = {
        found["Name"]: local_container_facts(found) for found in config["Cosmos"]["Containers"]
    }
    differences = [f"container {name} is in one place only" for name in declared.keys() ^ expected]
    for name in declared.keys() & expected.keys():
        differences += unequal(f"container {name}", declared[name], expected[name])
    database = {"name": journal.resource("database")["name"]}
    return sorted(differences) + unequal(
        "database", database, {"name": config["Cosmos"]["Database"]}
    )


def container_facts(resource: Resource) -> dict[str, Any]:
    body = section(resource.body, "properties", "resource")
    return {
        "id": body["id"],
        "partition key": section(body, "partitionKey")["paths"],
        "time to live": body.get("defaultTtl"),
        "index paths": index_paths(body.get("indexingPolicy")),
    }


def local_container_facts(container: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": container["Name"],
        "partition key": [container["PartitionKey"]],
        "time to live": container.get("DefaultTtl"),
        "index paths": index_paths(container.get("IndexingPolicy")),
    }


def index_paths(policy: Any) -> Any:
    return {key: policy[key] for key in ("includedPaths", "excludedPaths")} if policy else None


def unequal(what: str, found: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    return [
        f"{what}: {key} is {found.get(key)!r} in Azure, {expected.get(key)!r} locally"
        for key in sorted(found.keys() | expected.keys())
        if found.get(key) != expected.get(key)
    ]


def grants(access: Template) -> set[tuple[str, str, str]]:
    """Who holds which role on what, of one region's access."""
    return {grant(found) for found in access.resources() if "oleAssignments" in found.type}


def grant(assignment: Resource) -> tuple[str, str, str]:
    body = assignment.body
    properties = section(body, "properties")
    target = body.get("scope", body.get("parent"))
    role = GUID.findall(str(properties["roleDefinitionId"]))[-1]
    name = target.body["name"] if isinstance(target, Resource) else target
    return str(properties["principalId"]), KNOWN_ROLES[role], str(name)
