"""What the Bicep files deploy, and what runs on one machine: `local.config.json`."""

import json
import re
from pathlib import Path
from typing import Any

from cli.regions import CONFIG
from tests.infra.bicep import INFRA, read
from tests.infra.evaluation import Resource, Template

ROOT = INFRA.parent

# https://learn.microsoft.com/azure/role-based-access-control/built-in-roles; the last two are
# data-plane roles of Cosmos DB.
KNOWN_ROLES = {
    "4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0": "Azure Service Bus Data Receiver",
    "090c5cfd-751d-490a-894a-3ce6f1109419": "Azure Service Bus Data Owner",
    "69a216fc-b8fb-44d8-bc22-1f3c2cd27a39": "Azure Service Bus Data Sender",
    "b7e6dc6d-f1e8-4753-8033-0f276bb0955b": "Storage Blob Data Owner",
    "974c5e8b-45b9-4653-ba55-5f855dd0fb88": "Storage Queue Data Contributor",
    "0a9a7e1f-b9d0-4cc4-a60d-0319b160aaa3": "Storage Table Data Contributor",
    "0ad04412-c4d5-4796-b79c-f76d14c8d402": "Durable Task Data Contributor",
    "3913510d-42f4-4e42-8a64-420c390055eb": "Monitoring Metrics Publisher",
    "43d0d8ad-25c7-4714-9337-8ba259a9fe05": "Monitoring Reader",
    "00000000-0000-0000-0000-000000000001": "Cosmos DB Built-in Data Reader",
    "00000000-0000-0000-0000-000000000002": "Cosmos DB Built-in Data Contributor",
}

GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)

# What takes the place of a connection string where an identity connects, by the placeholder that
# the local value holds.
IDENTITY_SUFFIXES = {
    "{servicebus.": ("fullyQualifiedNamespace", "credential", "clientId"),
    "{cosmos}": ("accountEndpoint", "credential", "clientId"),
}

# Read by the Functions host, not by the application; the local host needs none of them. Flex
# Consumption refuses FUNCTIONS_WORKER_PROCESS_COUNT and others, so an instance has one process,
# which is what lets the messages of a session share a write (shared/engine/consume/turns.py):
# https://learn.microsoft.com/azure/azure-functions/functions-app-settings
STORAGE = ("blobServiceUri", "queueServiceUri", "tableServiceUri", "credential", "clientId")
PLATFORM_SETTINGS = {
    *(f"AzureWebJobsStorage__{one}" for one in STORAGE),
    "APPLICATIONINSIGHTS_AUTHENTICATION_STRING",
    *("OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"),
}

# Read by the local host only: where the task hub is, which in Azure is in the app's own storage,
# and that all that an app prints and logs is shown, which costs nothing.
LOCAL_SETTINGS = {
    "LOCAL_DURABLE_ADDRESS",
    "AzureFunctionsJobHost__logging__logLevel__Function",
}


def local_config() -> dict[str, Any]:
    return dict(load(CONFIG))


def load(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def deployment(**parameters: Any) -> Template:
    """main.bicep as a deployment would see it, with the parameters it requires."""
    required = {"environmentName": "trial", "location": "eastus2", "emails": "none"}
    given = {**required, **parameters}
    return Template(read("main.bicep"), given)


# Every switch that adds resources or settings.
EVERYTHING: dict[str, Any] = {
    "authentication": "entra",
    "clientId": "33333333-3333-3333-3333-333333333333",
    "durableBackend": "scheduler",
    "zoneRedundant": True,
    "frontDoor": True,
    "privateNetwork": True,
    "readers": "11111111-1111-1111-1111-111111111111",
    "producers": ["22222222-2222-2222-2222-222222222222"],
    "keepRecord": True,
    "emails": "somebody@example.com, another@example.com",
    "monthlyBudget": 500,
    "budgetFrom": "2026-12-01",
}


def region_of(name: str, main: Template | None = None, module: str = "region") -> Template:
    """One region's file as a deployment would see it, or another module that each region has."""
    whole = main or deployment()
    names = [str(found.arguments["region"]) for found in whole.modules("region")]
    return whole.modules(module)[names.index(name)]


def access_of(name: str, main: Template | None = None) -> Template:
    return region_of(name, main, "access")


def app_settings(region: Template) -> Any:
    return region.resource("settings")["properties"]


def expected_settings(local: dict[str, str]) -> set[str]:
    """Names the cloud must set for what the local hosts are given."""
    names = set(PLATFORM_SETTINGS)
    for name, value in local.items():
        suffixes = [found for mark, found in IDENTITY_SUFFIXES.items() if value.startswith(mark)]
        names |= {f"{name}__{suffix}" for suffix in suffixes[0]} if suffixes else {name}
    return names - LOCAL_SETTINGS


def azure_queues(region: Template) -> dict[str, dict[str, Any]]:
    """The properties of the queues of one region's namespace, by name."""
    return {
        str(resource.body["name"]): resource.body["properties"]
        for resource in region.resources()
        if resource.type == "Microsoft.ServiceBus/namespaces/queues"
    }


def local_queues(region: str, config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of a region's queues on one machine, in Azure's spelling, by name."""
    spaces = {space["Name"]: space for space in config["UserConfig"]["Namespaces"]}
    return {
        queue["Name"]: {
            key[0].lower() + key[1:]: value for key, value in queue["Properties"].items()
        }
        for queue in spaces[region]["Queues"]
    }


def azure_containers(journal: Template) -> dict[str, list[Any]]:
    """Database, key, time to live and index paths of every container, by name."""
    bodies = [
        (str(resource.body["name"]), resource.body["properties"]["resource"])
        for resource in journal.resources()
        if resource.type == "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"
    ]
    assert [name for name, _ in bodies] == [body["id"] for _, body in bodies]
    return {
        name: [
            journal.resource("database")["name"],
            body["partitionKey"]["paths"],
            body.get("defaultTtl"),
            index_paths(body.get("indexingPolicy")),
        ]
        for name, body in bodies
    }


def local_containers(config: dict[str, Any]) -> dict[str, list[Any]]:
    """The same facts of the containers on one machine."""
    return {
        container["Name"]: [
            config["Cosmos"]["Database"],
            [container["PartitionKey"]],
            container.get("DefaultTtl"),
            index_paths(container.get("IndexingPolicy")),
        ]
        for container in config["Cosmos"]["Containers"]
    }


def index_paths(policy: Any) -> Any:
    return {key: policy[key] for key in ("includedPaths", "excludedPaths")} if policy else None


def grants(access: Template) -> set[tuple[str, str, str]]:
    """Who holds which role on what, of one region's access."""
    return {grant(found) for found in access.resources() if "oleAssignments" in found.type}


def grant(assignment: Resource) -> tuple[str, str, str]:
    body = assignment.body
    properties = body["properties"]
    target = body.get("scope", body.get("parent"))
    role = GUID.findall(str(properties["roleDefinitionId"]))[-1]
    name = target.body["name"] if isinstance(target, Resource) else target
    return str(properties["principalId"]), KNOWN_ROLES[role], str(name)
