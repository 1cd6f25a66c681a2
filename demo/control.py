"""The local cloud's control endpoint: look at it, break a region, mend it."""

import json
import time
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
        self._ask("POST", f"/hosts/{region}", {"action": "kill"})
        fault = {"component": f"servicebus.{region}", "action": "down"}
        return int(self._ask("POST", "/faults", fault)["id"])

    def restore_region(self, region: str, fault: int) -> None:
        """Bring the namespace back and start the host; returns when the host is ready."""
        self._ask("DELETE", f"/faults/{fault}")
        self._ask("POST", f"/hosts/{region}", {"action": "start"})

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
