"""A Functions app of one HTTP function with a config beside it, and clients of its cloud."""

import json
from pathlib import Path
from typing import Any

from azure.cosmos import ContainerProxy, CosmosClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from local.testing.cloud import CloudProcess

APP = """
import os
import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="where")
def where(req: func.HttpRequest) -> func.HttpResponse:
    names = ("REGION", "EXTRA", "BUS", "STORE", "INHERITED")
    return func.HttpResponse("|".join(os.environ.get(name, "-") for name in names))
"""
CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {"Name": "east", "Queues": [{"Name": "work", "Properties": {"RequiresSession": True}}]}
        ]
    },
    "Cosmos": {
        "Database": "lockstep",
        "Containers": [{"Name": "journal", "PartitionKey": "/session"}],
    },
    "Hosts": {
        "Regions": ["east", "west"],
        "Values": {
            "REGION": "{region}",
            "EXTRA": "from the file",
            "BUS": "{servicebus.east}",
            "STORE": "{cosmos}",
            "INHERITED": "from the file",
        },
    },
}


def write_app(directory: Path) -> Path:
    """Write the app; returns the directory."""
    (directory / "function_app.py").write_text(APP)
    (directory / "host.json").write_text('{"version": "2.0"}')
    (directory / "local.config.json").write_text(json.dumps(CONFIG))
    return directory


def container(served: CloudProcess) -> ContainerProxy:
    cosmos = served.contract["cosmos"]
    client = CosmosClient(cosmos["endpoint"], cosmos["key"])
    return client.get_database_client(cosmos["database"]).get_container_client("journal")


def send(served: CloudProcess, body: str) -> None:
    """Put one message into the work queue."""
    bus = ServiceBusClient.from_connection_string(served.contract["servicebus"]["east"])
    with bus, bus.get_queue_sender("work") as sender:
        sender.send_messages(ServiceBusMessage(body, session_id="s"))


def is_running(pid: int) -> bool:
    """Whether a process exists."""
    return Path(f"/proc/{pid}").exists()
