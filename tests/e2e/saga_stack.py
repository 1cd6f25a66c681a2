"""Two regions with a host and a task hub each, over one journal, as they are in Azure."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.cloud import Cloud
from local.config import filled
from local.durable.backend import DurableBackend
from shared.domain.message import derived_id
from tests.cloud import CONFIG, running_cloud
from tests.wire.functions_host_process import KEY, HostProcess, running_host

REGIONS = ("east", "west")
APP = CONFIG.parent


@dataclass
class SagaStack:
    """What runs; a region's host can be killed and started again, its task hub stays."""

    cloud: Cloud
    logs: Path
    settings: dict[str, str]
    hubs: dict[str, DurableBackend]
    hosts: dict[str, HostProcess] = field(default_factory=dict)
    running: dict[str, ExitStack] = field(default_factory=dict)

    def start(self, region: str) -> None:
        """Start a region's host."""
        stack = ExitStack()
        settings = self.settings_of(region)
        name = f"{region}-{len(list(self.logs.iterdir()))}"
        self.hosts[region] = stack.enter_context(running_host(self.logs, APP, name, **settings))
        self.running[region] = stack

    def kill(self, region: str) -> None:
        """Kill a region's host."""
        self.hosts.pop(region)
        self.running.pop(region).close()

    def settings_of(self, region: str) -> dict[str, str]:
        """The settings of a region's host: those of the config, with a task hub of its own."""
        values = json.loads(CONFIG.read_text())["Hosts"]["Values"]
        known = {
            "region": region,
            "cosmos": self.cloud.cosmos.connection_string,
            "durable": self.hubs[region].address,
        }
        buses = self.cloud.namespaces.items()
        known |= {f"servicebus.{name}": bus.connection_string for name, bus in buses}
        return filled(values, known) | self.settings

    def ask(self, region: str, path: str, method: str = "GET", document: Any = None) -> Any:
        """Status and document of an HTTP answer."""
        body = json.dumps(document).encode() if document is not None else None
        key = KEY | {"Idempotency-Key": derived_id(path, repr(body))}
        answer = self.hosts[region].request(f"/api/{path}", method, key, body)
        return answer.status, json.loads(answer.body) if answer.body else None

    def start_saga(self, region: str, key: str, **order: Any) -> Any:
        """Start an order's saga."""
        placed = {"customer": "ada", "amount": 10, **order}
        return self.ask(region, f"sagas/{key}?type=order.place", "POST", placed)

    def saga(self, region: str, key: str) -> dict[str, Any]:
        """What a region says of a saga."""
        status, document = self.ask(region, f"sagas/{key}")
        assert status == 200, document
        return dict(document)

    def state(self, region: str, session: str) -> dict[str, Any] | None:
        """The state of a session, None while it has none."""
        status, document = self.ask(region, f"sessions/{session.replace(':', '%3A')}")
        return document["head"]["state"] if status == 200 else None


@contextmanager
def running_sagas(logs: Path, **settings: str) -> Iterator[SagaStack]:
    """Both regions for one `with` block; settings override those of the config."""
    with running_cloud(logs) as cloud, ExitStack() as running:
        hubs = {region: DurableBackend() for region in REGIONS}
        for hub in hubs.values():
            hub.start()
            running.callback(hub.stop)
        stack = SagaStack(cloud, logs, settings, hubs)
        for region in REGIONS:
            stack.start(region)
        try:
            yield stack
        finally:
            for region in list(stack.running):
                stack.kill(region)
