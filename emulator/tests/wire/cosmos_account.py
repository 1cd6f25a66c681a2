"""A started account of the local Cosmos DB, and plain azure-cosmos clients on it."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

from azure.cosmos import ContainerProxy, CosmosClient, DatabaseProxy

from local.cosmos.config import CosmosConfig
from local.cosmos.http.requests import parse_address
from local.cosmos.server import Cosmos, MasterKey
from local.counters import Counters
from local.faults import Action, Fault, Faults

SECTION: dict[str, Any] = {
    "Database": "lockstep",
    "Containers": [
        {
            "Name": "journal",
            "PartitionKey": "/session",
            "DefaultTtl": -1,
            "IndexingPolicy": {
                "includedPaths": [{"path": "/session/?"}, {"path": "/owing/?"}],
                "excludedPaths": [{"path": "/*"}],
            },
        },
        {"Name": "flights", "PartitionKey": "/tail"},
        {"Name": "divided", "PartitionKey": "/tail", "Partitions": 5},
    ],
}
CONFIG = CosmosConfig.parse(SECTION)
THREE_REGIONS = CosmosConfig.parse({"Regions": ["east", "west", "north"], **SECTION})


@dataclass
class Clock:
    """A clock that stands until it is moved."""

    seconds: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class RunningAccount:
    """An account under test with everything that can be asked of it."""

    cosmos: Cosmos
    client: CosmosClient
    faults: Faults
    counters: Counters
    clock: Callable[[], float] = field(repr=False)

    @property
    def database(self) -> DatabaseProxy:
        """The configured database."""
        return self.client.get_database_client("lockstep")

    @property
    def journal(self) -> ContainerProxy:
        """A container that indexes next to nothing."""
        return self.database.get_container_client("journal")

    @property
    def flights(self) -> ContainerProxy:
        """A container with the default settings."""
        return self.database.get_container_client("flights")

    @property
    def divided(self) -> ContainerProxy:
        """A container with the default settings that has five physical partitions."""
        return self.database.get_container_client("divided")

    def arm(self, action: Action, operation: str, **rest: Any) -> None:
        """Put a fault in force, once unless `times` is given."""
        self.faults.arm(Fault("cosmos", action, operation, **{"times": 1, **rest}))

    def counted(self, operation: str) -> dict[str, int]:
        """How often an operation on items of any container ended in each status."""
        total: Counter[str] = Counter()
        for component, operations in self.counters.snapshot().items():
            if component.startswith("cosmos."):
                for status, row in operations.get(operation, {}).items():
                    total[status] += int(row["count"])
        return dict(total)

    def send(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """One signed request that no client would send; the answer is (status, document)."""
        status, _, document = self.ask(self.cosmos.port, method, path, body, headers)
        return status, document

    def ask(
        self,
        port: int,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], Any]:
        """The same at a port; the answer is (status, headers by lower-case name, document)."""
        status, received, text = self.exchange(port, method, path, body, headers)
        is_binary = text.startswith(b"\x81")  # HybridRow, which has no type of content
        return status, received, text if is_binary else json.loads(text or "{}")

    def exchange(
        self,
        port: int,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        """The same with the body of the answer as it comes."""
        address = parse_address(path)
        date = formatdate(usegmt=True)
        signature = MasterKey(self.cosmos.key).sign(method, address.kind, address.link, date)
        token = quote(f"type=master&ver=1.0&sig={signature}", safe="")
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        signed = {"authorization": token, "x-ms-date": date, **(headers or {})}
        payload = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
        connection.request(method, path, payload, signed)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        received = {name.lower(): value for name, value in response.getheaders()}
        return response.status, received, text


@contextmanager
def running_account(
    clock: Callable[[], float] | None = None,
    data_dir: Path | None = None,
    config: CosmosConfig = CONFIG,
) -> Iterator[RunningAccount]:
    """Start an account on free ports, connect, and stop it at the end."""
    faults, counters, chosen = Faults(), Counters(), clock or Clock()
    cosmos = Cosmos(config, faults=faults, counters=counters, clock=chosen, data_dir=data_dir)
    with cosmos, CosmosClient(cosmos.endpoint, cosmos.key) as client:
        yield RunningAccount(cosmos, client, faults, counters, chosen)
