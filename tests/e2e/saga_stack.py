"""Two regions with a host and a task hub each, over one journal, as they are in Azure."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.cloud import Cloud, CloudOptions
from local.config import load_config
from local.durable.backend import DurableBackend
from local.faults import Action, Fault
from shared.domain.message import derive_id
from tests.cloud import CONFIG
from tests.wire.functions_host_process import KEY, request

REGIONS = ("east", "west")


@dataclass
class SagaStack:
    """What runs; a region can be killed and started again, with what is in its task hub."""

    cloud: Cloud
    down: dict[str, int] = field(default_factory=dict)

    @property
    def hubs(self) -> Mapping[str, DurableBackend]:
        """The task hub of each region."""
        return self.cloud.durable

    def start(self, region: str) -> None:
        """Start a region that was killed."""
        self.cloud.faults.disarm(self.down.pop(region))
        self.cloud.hosts.act(region, "start")

    def kill(self, region: str) -> None:
        """Kill a region's host; its task hub is out of reach from then on."""
        self.cloud.hosts.act(region, "kill")
        self.down[region] = self.cloud.faults.arm(Fault(f"durable.{region}", Action.DOWN))

    def ask(self, region: str, path: str, method: str = "GET", document: Any = None) -> Any:
        """Status and document of an HTTP answer."""
        body = json.dumps(document).encode() if document is not None else None
        key = KEY | {"Idempotency-Key": derive_id(path, repr(body))}
        answer = request(f"{self.cloud.hosts.urls[region]}/api/{path}", method, key, body)
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
    options = CloudOptions(logs=logs, app=CONFIG.parent, settings=settings)
    with Cloud(load_config(CONFIG), options) as cloud:
        yield SagaStack(cloud)
