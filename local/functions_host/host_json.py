"""`host.json`: the limits the host works under, read whole or refused.

A key that is not honoured is an error that names it, so a limit is never ignored in silence.
"""

import json
import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.functions_host.host_json_settings import overruled
from local.functions_host.refusal import Refused
from local.functions_host.timespan import seconds_of

LEVELS = {
    "Trace": logging.DEBUG,
    "Debug": logging.DEBUG,
    "Information": logging.INFO,
    "Warning": logging.WARNING,
    "Error": logging.ERROR,
    "Critical": logging.CRITICAL,
    "None": logging.CRITICAL + 10,
}
PROCESSORS = os.cpu_count() or 1
CATEGORIES = ("default", "Function", "Host")


@dataclass(frozen=True, slots=True)
class ServiceBusOptions:
    """`extensions.serviceBus`; the defaults are those of the extension."""

    prefetch_count: int = 0
    max_auto_lock_renewal_seconds: float = 300.0
    max_concurrent_sessions: int = 8
    session_idle_seconds: float = 60.0
    max_concurrent_calls: int = 16 * PROCESSORS
    min_batch: int = 1
    max_batch: int = 1000
    max_batch_wait_seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """`extensions.durableTask`; there is one hub on a machine, whatever it is called."""

    hub_name: str = "TestHubName"
    max_orchestrators: int = 10 * PROCESSORS
    max_activities: int = 10 * PROCESSORS
    max_entities: int = 10 * PROCESSORS


@dataclass(frozen=True, slots=True)
class HostJson:
    """What a host file says that this host acts on; infinity means without limit."""

    function_timeout_seconds: float = 1800.0
    route_prefix: str = "api"
    service_bus: ServiceBusOptions = field(default_factory=ServiceBusOptions)
    durable: DurableOptions = field(default_factory=DurableOptions)
    log_levels: Mapping[str, int] = field(default_factory=dict)


class Section:
    """One object of the file; every key must be taken before it is closed."""

    def __init__(self, content: Any, path: str) -> None:
        if not isinstance(content, dict):
            raise Refused(f"{path} must be an object")
        self._left = dict(content)
        self._path = path

    def take[T](self, key: str, read: Callable[[Any], T], default: T) -> T:
        """Read one key with a reader that raises ValueError on what it does not honour."""
        if key not in self._left:
            return default
        value = self._left.pop(key)
        try:
            return read(value)
        except (TypeError, ValueError) as error:
            raise Refused(f"{self._path}: {key} = {json.dumps(value)}: {error}") from error

    def section(self, key: str) -> "Section":
        """The object below a key; an absent one is empty."""
        return Section(self._left.pop(key, {}), f"{self._path}: {key}")

    def close(self) -> None:
        """Refuse whatever was not taken."""
        if self._left:
            raise Refused(f"{self._path}: not honoured: {', '.join(sorted(self._left))}")


def load(app_directory: Path, settings: Mapping[str, str]) -> HostJson:
    """Read the app's host.json, overruled by settings; a missing file is Refused, as in Azure."""
    path = app_directory / "host.json"
    if not path.exists():
        raise Refused(f"no host.json in {app_directory}")
    try:
        return parse(overruled(json.loads(path.read_text("utf-8")), settings))
    except json.JSONDecodeError as error:
        raise Refused(f"{path}: not JSON: {error}") from error


def parse(document: Any) -> HostJson:
    """Read a host document; whatever is not honoured is Refused by name."""
    root = Section(document, "host.json")
    root.take("version", exactly("2.0"), "2.0")
    root.take("telemetryMode", one_of("OpenTelemetry", "ApplicationInsights"), "")
    root.take("extensionBundle", lambda bundle: bundle, None)
    timeout = root.take("functionTimeout", function_timeout, 1800.0)
    levels = log_levels(root.section("logging"))
    extensions = root.section("extensions")
    host = HostJson(
        timeout, http(extensions), service_bus(extensions), durable_task(extensions), levels
    )
    extensions.close()
    root.close()
    return host


def http(extensions: Section) -> str:
    """Read the route prefix, without its outer slashes."""
    section = extensions.section("http")
    prefix = section.take("routePrefix", text, "api")
    section.close()
    return prefix.strip("/")


def service_bus(extensions: Section) -> ServiceBusOptions:
    """Read the options of the trigger."""
    section = extensions.section("serviceBus")
    section.take("autoCompleteMessages", exactly(True), True)
    section.take("enableCrossEntityTransactions", exactly(False), False)
    section.take("transportType", exactly("amqpTcp"), "amqpTcp")
    section.take("maxConcurrentCallsPerSession", exactly(1), 1)
    options = ServiceBusOptions(
        section.take("prefetchCount", whole_number(0), 0),
        section.take("maxAutoLockRenewalDuration", seconds_of, 300.0),
        section.take("maxConcurrentSessions", whole_number(1), 8),
        section.take("sessionIdleTimeout", seconds_of, 60.0),
        section.take("maxConcurrentCalls", whole_number(1), 16 * PROCESSORS),
        section.take("minMessageBatchSize", whole_number(1), 1),
        section.take("maxMessageBatchSize", whole_number(1), 1000),
        section.take("maxBatchWaitTime", seconds_of, 30.0),
    )
    if options.min_batch > options.max_batch:
        raise Refused("host.json: extensions: serviceBus: minMessageBatchSize is above the maximum")
    section.close()
    return options


def durable_task(extensions: Section) -> DurableOptions:
    """Read the task hub's options; the storage provider is read, and stood in for."""
    section = extensions.section("durableTask")
    section.take("storageProvider", dict, {})
    default = DurableOptions()
    options = DurableOptions(
        section.take("hubName", text, default.hub_name),
        section.take(
            "maxConcurrentOrchestratorFunctions", whole_number(1), default.max_orchestrators
        ),
        section.take("maxConcurrentActivityFunctions", whole_number(1), default.max_activities),
        section.take("maxConcurrentEntityFunctions", whole_number(1), default.max_entities),
    )
    section.close()
    return options


def log_levels(section: Section) -> Mapping[str, int]:
    """Read levels by category: `default`, `Host`, `Function` and `Function.<name>`.

    Nothing is sent to Application Insights: how it would be sampled is read, and has no effect.
    """
    levels: dict[str, Any] = section.take("logLevel", dict, {})
    section.take("applicationInsights", dict, {})
    section.close()
    for category, name in levels.items():
        if category not in CATEGORIES and not category.startswith("Function."):
            raise Refused(f"host.json: logging: logLevel: not honoured: {category}")
        if name not in LEVELS:
            raise Refused(f"host.json: logging: logLevel: {category}: unknown level {name!r}")
    return {category: LEVELS[name] for category, name in levels.items()}


def function_timeout(value: Any) -> float:
    """Read the time a function may take; -1 means without limit."""
    return math.inf if value in ("-1", -1) else seconds_of(value)


def exactly(expected: Any) -> Callable[[Any], Any]:
    """Return a reader that honours one value only."""

    def read(value: Any) -> Any:
        if value != expected:
            raise ValueError(f"only {json.dumps(expected)} is honoured")
        return value

    return read


def one_of(*choices: str) -> Callable[[Any], str]:
    """Return a reader that honours the given words."""

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return read


def whole_number(least: int) -> Callable[[Any], int]:
    """Return a reader of numbers that are not below `least`."""

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"must be a whole number of at least {least}")
        return value

    return read


def text(value: Any) -> str:
    """Read a string."""
    if not isinstance(value, str):
        raise TypeError("must be a string")
    return value
