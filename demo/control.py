"""The local cloud's control endpoint: look at it, break a region, mend it."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from demo.costs import Counters
from demo.samples import Depths, Sample, read_sample

TIMEOUT_SECONDS = 90.0


class ControlRefused(Exception):
    """The control endpoint answered with an error, or did not answer."""


@dataclass(frozen=True, slots=True)
class Control:
    """A client of the control endpoint; every method may raise ControlRefused."""

    url: str
    queue: str

    def counters(self) -> Counters:
        """Return what every component has counted so far."""
        return self._counts()[0]

    def sample(self) -> Sample:
        """Look at both regions now."""
        counters, depths = self._counts()
        down = (fault for fault in self._ask("GET", "/faults") if fault["action"] == "down")
        return read_sample(
            time.time(),
            self.queue,
            counters,
            depths,
            self._ask("GET", "/hosts"),
            frozenset(fault["component"] for fault in down),
        )

    def kill_region(self, region: str) -> int:
        """Kill a region's host with SIGKILL and take its namespace down; return the fault's id."""
        self.act(region, "kill")
        return self.arm({"component": f"servicebus.{region}", "action": "down"})

    def restore_region(self, region: str, fault: int) -> None:
        """Bring the namespace back and start the host; returns when the host is ready."""
        self.lift(fault)
        self.act(region, "start")

    def hosts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return state, address and process of the host of each region."""
        hosts: Mapping[str, Mapping[str, Any]] = self._ask("GET", "/hosts")
        return hosts

    def act(self, region: str, action: str) -> None:
        """Kill, stop or start a region's host; returns when that is done."""
        self._ask("POST", f"/hosts/{region}", {"action": action})

    def arm(self, fault: Mapping[str, object]) -> int:
        """Put a fault in force; return its id."""
        return int(self._ask("POST", "/faults", fault)["id"])

    def lift(self, fault: int | None = None) -> None:
        """Lift one fault, or all of them."""
        self._ask("DELETE", "/faults" if fault is None else f"/faults/{fault}")

    def move_writes(self, region: str) -> None:
        """Let another region of the account take the writes."""
        self._ask("POST", "/cosmos/write-region", {"region": region})

    def depths(self) -> Depths:
        """Return what every queue holds, by region, queue and state."""
        return self._counts()[1]

    def _counts(self) -> tuple[Counters, Depths]:
        counters = self._ask("GET", "/counters")
        return counters, counters.pop("queues")

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_SECONDS)
        body = None if document is None else json.dumps(document)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read().decode()
        except OSError as error:
            raise ControlRefused(f"{method} {path}: no answer ({error})") from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise ControlRefused(f"{method} {path}: {answer.status} {text}")
        return json.loads(text)
