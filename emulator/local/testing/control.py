"""A client of the local cloud's control endpoint: look at it, break it, repair it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

from local.testing.failures import CloudFailed

TIMEOUT_SECONDS = 90.0

# By component, operation, status and measure (count, bytes, request_units).
type Counters = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]
# By region, queue and state.
type Depths = Mapping[str, Mapping[str, Mapping[str, int]]]
# By component, operation and status: how often, and for how many request units.
type CounterKey = tuple[str, str, str]
type Tallies = Mapping[CounterKey, tuple[int, float]]


class ControlRefused(CloudFailed):
    """The control endpoint answered with an error, or did not answer."""


@dataclass(frozen=True, slots=True)
class ControlClient:
    """Every method but `request` raises ControlRefused; `request` raises OSError."""

    url: str

    def request(self, method: str, path: str, document: Any = None) -> tuple[int, Any]:
        return request_json(method, self.url + path, document)

    def read_counters(self) -> Counters:
        return self._read_counts()[0]

    def read_depths(self) -> Depths:
        return self._read_counts()[1]

    def count_completed(self, region: str) -> int:
        """Return how many deliveries of a region's queues were settled so far."""
        return count_operations(self.read_counters(), f"servicebus.{region}", "complete")

    def read_queue(self, region: str, queue: str) -> list[dict[str, Any]]:
        """Return session, id, state and failed deliveries of each message and dead letter."""
        messages: list[dict[str, Any]] = self._ask("GET", f"/queues/{region}/{queue}")["messages"]
        return messages

    def read_hosts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return state, URL and process id of each region's host."""
        hosts: Mapping[str, Mapping[str, Any]] = self._ask("GET", "/hosts")
        return hosts

    def read_faults(self) -> list[dict[str, Any]]:
        faults: list[dict[str, Any]] = self._ask("GET", "/faults")
        return faults

    def act(self, region: str, action: str) -> None:
        """Kill, stop or start a region's host; returns when that is done."""
        self._ask("POST", f"/hosts/{region}", {"action": action})

    def arm(self, fault: Mapping[str, object]) -> int:
        """Put a fault in force; return its id."""
        return int(self._ask("POST", "/faults", fault)["id"])

    def clear(self, fault: int | None = None) -> None:
        """Lift one fault, or all of them."""
        self._ask("DELETE", "/faults" if fault is None else f"/faults/{fault}")

    def move_writes(self, region: str) -> None:
        """Let another region of the Cosmos account take the writes."""
        self._ask("POST", "/cosmos/write-region", {"region": region})

    def _read_counts(self) -> tuple[Counters, Depths]:
        counters = self._ask("GET", "/counters")
        return counters, counters.pop("queues")

    def _ask(self, method: str, path: str, document: object = None) -> Any:
        try:
            status, found = self.request(method, path, document)
        except OSError as error:
            raise ControlRefused(f"{method} {path}: no answer ({error})") from error
        if status >= 400:
            raise ControlRefused(f"{method} {path}: {status} {json.dumps(found)}")
        return found


def request_json(
    method: str,
    url: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT_SECONDS,
) -> tuple[int, Any]:
    """Send one HTTP request, its body as JSON unless it is text; return status and document.

    A response that is not JSON is returned as text. Raises OSError or
    HTTPException without a response.
    """
    parts = urlsplit(url)
    connection = HTTPConnection(parts.netloc, timeout=timeout)
    payload = body if body is None or isinstance(body, str) else json.dumps(body)
    path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
    try:
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection.request(method, path, payload, sent)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    is_json = "json" in (response.getheader("Content-Type") or "")
    return response.status, json.loads(text) if is_json and text else text


def count_operations(counters: Counters, component: str, operation: str) -> int:
    """Return how often an operation was counted, however it ended."""
    rows = counters.get(component, {}).get(operation, {})
    return round(sum(row["count"] for row in rows.values()))


def flatten_counters(counters: Counters) -> Tallies:
    return {
        (component, operation, status): (round(row["count"]), row["request_units"])
        for component, operations in counters.items()
        for operation, statuses in operations.items()
        for status, row in statuses.items()
    }


def subtract_tallies(before: Tallies, after: Tallies) -> dict[CounterKey, tuple[int, float]]:
    """Return the counters that grew between two looks, and by how much."""
    grown = {}
    for key, (count, units) in after.items():
        count_before, units_before = before.get(key, (0, 0.0))
        if count != count_before:
            grown[key] = count - count_before, units - units_before
    return grown
