"""What a deployment creates, and what runs on one machine: `local.config.json`."""

import re
from collections.abc import Mapping
from typing import Any

from cli.regions import CONFIG
from tests.infra.snapshots import INFRA, Resource, Resources, load, of_type

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


def expected_settings(local: Mapping[str, str]) -> set[str]:
    """Names the cloud must set for what the local hosts are given."""
    names = set(PLATFORM_SETTINGS)
    for name, value in local.items():
        suffixes = [found for mark, found in IDENTITY_SUFFIXES.items() if value.startswith(mark)]
        names |= {f"{name}__{suffix}" for suffix in suffixes[0]} if suffixes else {name}
    return names - LOCAL_SETTINGS


def azure_queues(resources: Resources, region: str) -> dict[str, Any]:
    """The properties of the queues of one region's namespace, by name."""
    found = of_type(resources, "Microsoft.ServiceBus/namespaces/queues", region)
    return {last(one["name"]): one["properties"] for one in found}


def local_queues(region: str, config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The properties of a region's queues on one machine, in Azure's spelling, by name."""
    spaces = {space["Name"]: space for space in config["UserConfig"]["Namespaces"]}
    return {
        queue["Name"]: {
            key[0].lower() + key[1:]: value for key, value in queue["Properties"].items()
        }
        for queue in spaces[region]["Queues"]
    }


def azure_containers(resources: Resources) -> dict[str, list[Any]]:
    """Database, key, time to live and index paths of every container, by name."""
    kind = "Microsoft.DocumentDB/databaseAccounts/sqlDatabases/containers"
    found = {}
    for container in of_type(resources, kind):
        _, database, name = container["name"].split("/")
        body = container["properties"]["resource"]
        assert name == body["id"]
        indexed = index_paths(body.get("indexingPolicy"))
        found[name] = [database, body["partitionKey"]["paths"], body.get("defaultTtl"), indexed]
    return found


def local_containers(config: Mapping[str, Any]) -> dict[str, list[Any]]:
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


def grants(resources: Resources) -> dict[str, set[tuple[str, str]]]:
    """By region, for its identity, or by person or producer: each role, with what it is on."""
    found: dict[str, set[tuple[str, str]]] = {}
    for one in resources:
        if "oleAssignments" in one["type"]:
            who, role, scope = grant(one)
            found.setdefault(who, set()).add((role, last(scope)))
    return found


def grant(assignment: Resource) -> tuple[str, str, str]:
    """Who holds which role on what: an identity is called by its region."""
    properties = assignment["properties"]
    who = re.sub(r".*/id-lockstep-(\w+)-.*", r"\1", properties["principalId"])
    # The id begins with the scope, in an expression where Azure alone knows the name after it.
    begins = assignment["id"].removeprefix("[extensionResourceId('")
    scope = properties.get("scope", re.split("',|/providers/Microsoft.Authorization/", begins)[0])
    return who, KNOWN_ROLES[last(properties["roleDefinitionId"])], scope


def last(path: str) -> str:
    """The last part of a name or a resource id."""
    return path.rpartition("/")[2]
