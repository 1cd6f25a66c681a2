"""`host.json`: the limits the host works under, read whole or refused.

A key that is not honoured is an error that names it, so a limit is never ignored in silence. App
settings `AzureFunctionsJobHost__<path, joined by __>` overrule it.
"""

import json
import logging
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.functions_host.config.settings import Unsupported

PREFIX = "AzureFunctionsJobHost__"
TIMESPAN = re.compile(
    r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>\d{1,2}):(?P<minutes>[0-5]?\d)"
    r"(?::(?P<seconds>[0-5]?\d(?:\.\d{1,7})?))?"
)
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
# The SDKs and extensions of the real host, of which this one has none to quieten.
ABSENT = ("Azure", "Microsoft")
# What a blob lease can last, and the least that the real host waits before it looks again; it does
# not start with other values.
LOCK_SECONDS_MIN, LOCK_SECONDS_MAX = 15.0, 60.0


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
    max_calls_per_session: int = 1


@dataclass(frozen=True, slots=True)
class DurableOptions:
    """`extensions.durableTask`; there is one hub on a machine, whatever it is called.

    `polling_seconds` is how long the hub's queues may stay without a look: none where it pushes.
    """

    hub_name: str = "TestHubName"
    polling_seconds: float = 30.0
    max_orchestrators: int = 10 * PROCESSORS
    max_activities: int = 10 * PROCESSORS
    max_entities: int = 10 * PROCESSORS


@dataclass(frozen=True, slots=True)
class SingletonOptions:
    """`singleton`: how long a timer's lock lasts, and how often a host that waits for it looks."""

    listener_lock_seconds: float = 60.0
    recovery_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class HostJson:
    """The settings of a host file that this host acts on; infinity means without limit."""

    function_timeout_seconds: float = 1800.0
    route_prefix: str = "api"
    service_bus: ServiceBusOptions = field(default_factory=ServiceBusOptions)
    durable: DurableOptions = field(default_factory=DurableOptions)
    singleton: SingletonOptions = field(default_factory=SingletonOptions)
    log_levels: Mapping[str, int] = field(default_factory=dict)


class HostJsonSection:
    """One object of the file; every key must be taken before it is closed."""

    def __init__(self, content: Any, path: str) -> None:
        if not isinstance(content, dict):
            raise Unsupported(f"{path} must be an object")
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
            raise Unsupported(f"{self._path}: {key} = {json.dumps(value)}: {error}") from error

    def section(self, key: str) -> "HostJsonSection":
        """The object below a key; an absent one is empty."""
        return HostJsonSection(self._left.pop(key, {}), f"{self._path}: {key}")

    def close(self) -> None:
        if self._left:
            raise Unsupported(f"{self._path}: not honoured: {', '.join(sorted(self._left))}")


def load(app_directory: Path, settings: Mapping[str, str]) -> HostJson:
    """Read the app's host.json, overruled by settings; a missing file is Unsupported."""
    path = app_directory / "host.json"
    if not path.exists():
        raise Unsupported(f"no host.json in {app_directory}")
    try:
        return parse(overrule(json.loads(path.read_text("utf-8")), settings))
    except json.JSONDecodeError as error:
        raise Unsupported(f"{path}: not JSON: {error}") from error


def parse(document: Any) -> HostJson:
    root = HostJsonSection(document, "host.json")
    root.take("version", exactly("2.0"), "2.0")
    root.take("telemetryMode", one_of("OpenTelemetry", "ApplicationInsights"), "")
    root.take("extensionBundle", lambda bundle: bundle, None)
    timeout = root.take("functionTimeout", read_timeout, 1800.0)
    levels = read_log_levels(root.section("logging"))
    singleton = read_singleton(root.section("singleton"))
    extensions = root.section("extensions")
    http = extensions.section("http")
    prefix = http.take("routePrefix", read_string, "api").strip("/")
    http.close()
    service_bus, durable = read_service_bus(extensions), read_durable_task(extensions)
    extensions.close()
    root.close()
    return HostJson(timeout, prefix, service_bus, durable, singleton, levels)


def read_service_bus(extensions: HostJsonSection) -> ServiceBusOptions:
    section = extensions.section("serviceBus")
    section.take("autoCompleteMessages", exactly(True), True)
    section.take("enableCrossEntityTransactions", exactly(False), False)
    section.take("transportType", exactly("amqpTcp"), "amqpTcp")
    options = ServiceBusOptions(
        section.take("prefetchCount", whole_number(0), 0),
        section.take("maxAutoLockRenewalDuration", parse_timespan, 300.0),
        section.take("maxConcurrentSessions", whole_number(1), 8),
        section.take("sessionIdleTimeout", parse_timespan, 60.0),
        section.take("maxConcurrentCalls", whole_number(1), 16 * PROCESSORS),
        section.take("minMessageBatchSize", whole_number(1), 1),
        section.take("maxMessageBatchSize", whole_number(1), 1000),
        section.take("maxBatchWaitTime", parse_timespan, 30.0),
        section.take("maxConcurrentCallsPerSession", whole_number(1), 1),
    )
    if options.min_batch > options.max_batch:
        where = "host.json: extensions: serviceBus"
        raise Unsupported(f"{where}: minMessageBatchSize is above the maximum")
    section.close()
    return options


def read_durable_task(extensions: HostJsonSection) -> DurableOptions:
    """Read the task hub's options. Of its storage only how often it is looked at has an effect."""
    section = extensions.section("durableTask")
    storage = section.section("storageProvider")  # not closed: each kind has keys of its own
    kind = storage.take("type", read_string, "AzureStorage")
    polling_seconds = storage.take("maxQueuePollingInterval", read_polling, 30.0)
    if kind.lower() not in ("azurestorage", "azure_storage"):
        polling_seconds = 0.0
    count, least = 10 * PROCESSORS, whole_number(1)
    options = DurableOptions(
        section.take("hubName", read_string, "TestHubName"),
        polling_seconds,
        section.take("maxConcurrentOrchestratorFunctions", least, count),
        section.take("maxConcurrentActivityFunctions", least, count),
        section.take("maxConcurrentEntityFunctions", least, count),
    )
    section.close()
    return options


def read_polling(value: Any) -> float:
    seconds = parse_timespan(value)
    if not 0 < seconds < math.inf:
        raise ValueError("must be longer than nothing, and end")
    return seconds


def read_singleton(section: HostJsonSection) -> SingletonOptions:
    options = SingletonOptions(
        section.take("listenerLockPeriod", lock_seconds(LOCK_SECONDS_MAX), 60.0),
        section.take("listenerLockRecoveryPollingInterval", lock_seconds(math.inf), 60.0),
    )
    section.close()
    return options


def read_log_levels(section: HostJsonSection) -> Mapping[str, int]:
    """Read levels by category: `default`, `Host`, `Function` and `Function.<name>`.

    Those of the real host's SDKs and extensions are read, and have no effect.
    Nothing is sent to Application Insights: how it would be sampled is read, and has no effect.
    """
    levels: dict[str, Any] = section.take("logLevel", dict, {})
    section.take("applicationInsights", dict, {})
    section.close()
    for category, name in levels.items():
        is_known = category in CATEGORIES or category.partition(".")[0] in ("Function", *ABSENT)
        if not is_known:
            raise Unsupported(f"host.json: logging: logLevel: not honoured: {category}")
        if name not in LEVELS:
            raise Unsupported(f"host.json: logging: logLevel: {category}: unknown level {name!r}")
    return {category: LEVELS[name] for category, name in levels.items()}


def read_timeout(value: Any) -> float:
    """Read the time a function may take; -1 means without limit."""
    return math.inf if value in ("-1", -1) else parse_timespan(value)


def exactly(expected: Any) -> Callable[[Any], Any]:

    def read(value: Any) -> Any:
        if value != expected:
            raise ValueError(f"only {json.dumps(expected)} is honoured")
        return value

    return read


def one_of(*choices: str) -> Callable[[Any], str]:

    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"must be one of {', '.join(choices)}")
        return str(value)

    return read


def whole_number(least: int) -> Callable[[Any], int]:

    def read(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"must be a whole number of at least {least}")
        return value

    return read


def lock_seconds(most: float) -> Callable[[Any], float]:

    def read(value: Any) -> float:
        seconds = parse_timespan(value)
        if not LOCK_SECONDS_MIN <= seconds <= most or math.isinf(seconds):
            limit = "" if math.isinf(most) else f" and at most {most:g}"
            raise ValueError(f"must be at least {LOCK_SECONDS_MIN:g} s{limit}")
        return seconds

    return read


def read_string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("must be a string")
    return value


def overrule(document: Any, settings: Mapping[str, str]) -> Any:
    """Put the settings into the document; one below a value that is no object is Unsupported.

    Truth values and whole numbers are read as such, all else as text.
    """
    for name in sorted(settings):
        if name.startswith(PREFIX):
            text = settings[name]
            words = {"true": True, "false": False}
            value: Any = int(text) if text.isdecimal() else words.get(text.lower(), text)
            document = set_path(document, name.removeprefix(PREFIX).split("__"), value, name)
    return document


def set_path(document: Any, path: list[str], value: Any, setting: str) -> Any:
    if not isinstance(document, dict):
        raise Unsupported(f"the app setting {setting} lies below a value of host.json")
    first, *rest = path
    inner = set_path(document.get(first, {}), rest, value, setting) if rest else value
    return {**document, first: inner}


def parse_timespan(text: str) -> float:
    """Read a duration in .NET's notation, `hh:mm:ss` or `d.hh:mm:ss` with fractions, in seconds.

    A negative one means without limit and is infinity. Anything else raises ValueError.
    """
    match = TIMESPAN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a duration such as 00:05:00")
    if match["sign"]:
        return math.inf
    hours = int(match["days"] or 0) * 24 + int(match["hours"])
    return hours * 3600 + int(match["minutes"]) * 60 + float(match["seconds"] or 0)
