"""A namespace and a host with the app of all Service Bus triggers, for tests of the host."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage

from local.counters import Counters
from local.faults import Fault, Faults
from local.servicebus.config import parse_namespaces
from local.servicebus.server import Namespace
from local.testing.patience import eventually
from wire.functions_host_process import HostProcess, bus_client

BUS_APP = Path(__file__).parent / "bus_app"
LIMITS: dict[str, Any] = {"LockDuration": "PT30S", "MaxDeliveryCount": 5}
BRIEF: dict[str, Any] = {**LIMITS, "LockDuration": "PT4S"}
CONFIG = {
    "Namespaces": [
        {
            "Name": "east",
            "Queues": [
                {"Name": "plain", "Properties": BRIEF},
                {"Name": "heaps", "Properties": LIMITS},
                {"Name": "text", "Properties": LIMITS},
                {"Name": "raw", "Properties": LIMITS},
                {"Name": "raws", "Properties": LIMITS},
                {"Name": "batches", "Properties": {**LIMITS, "RequiresSession": True}},
            ],
            "Topics": [
                {"Name": "news", "Subscriptions": [{"Name": "all", "Properties": LIMITS}]},
                {
                    "Name": "tales",
                    "Subscriptions": [
                        {"Name": "told", "Properties": {**LIMITS, "RequiresSession": True}}
                    ],
                },
            ],
        }
    ]
}


@contextmanager
def running_namespace(*faults: Fault) -> Iterator[Namespace]:
    """A namespace for one `with` block, with faults armed."""
    (config,) = parse_namespaces(CONFIG)
    armed = Faults()
    for fault in faults:
        armed.arm(fault)
    namespace = Namespace(config, port=0, faults=armed, counters=Counters())
    namespace.start()
    try:
        yield namespace
    finally:
        namespace.stop()


def message(body: dict[str, Any], session: str | None = None, **rest: Any) -> ServiceBusMessage:
    """A message with a JSON body."""
    return ServiceBusMessage(json.dumps(body), session_id=session, **rest)


def send(namespace: Namespace, entity: str, messages: Iterable[ServiceBusMessage]) -> None:
    """Send messages together, so that they are there at once."""
    with bus_client(namespace.connection_string) as client:
        is_topic = entity in ("news", "tales")
        sender = client.get_topic_sender if is_topic else client.get_queue_sender
        with sender(entity) as link:
            link.send_messages(list(messages))


def runs(host: HostProcess, kind: str, messages: int) -> list[dict[str, Any]]:
    """The runs so far, once they were given so many messages."""

    def enough() -> bool:
        return sum(len(run["messages"]) for run in host.seen(kind)) >= messages

    eventually(enough)
    return host.seen(kind)


def numbers(run: dict[str, Any]) -> list[int]:
    """The numbers in the bodies of a run."""
    return [note["body"]["n"] for note in run["messages"]]


def is_drained(namespace: Namespace, queue: str) -> bool:
    """Whether nothing waits and nothing is locked."""
    depth = namespace.depth(queue)
    return depth["active"] == depth["locked"] == 0
