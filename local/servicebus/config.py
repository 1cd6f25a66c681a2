"""What a namespace holds, read from the official emulator's `Config.json` format.

Only what the engine keeps is accepted: any other key, kind of entity or value raises InvalidConfig
with the place where it was found. Ignored without effect: `Logging` and, on a queue without
duplicate detection, `DuplicateDetectionHistoryTimeWindow` (Microsoft's own sample carries both).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
LOCK_SECONDS_MAX = 300.0
DELIVERY_COUNT_MAX = 2000

DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
SECONDS_PER = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}

DEFAULTS: dict[str, Any] = {
    "RequiresSession": False,
    "LockDuration": "PT1M",
    "MaxDeliveryCount": 10,
    "DefaultMessageTimeToLive": None,
    "DeadLetteringOnMessageExpiration": False,
    "RequiresDuplicateDetection": False,
    "DuplicateDetectionHistoryTimeWindow": None,
    "ForwardTo": "",
    "ForwardDeadLetteredMessagesTo": "",
}
# Known to the format, not kept by the engine: only these values change nothing and may stand.
NOT_HONOURED = {
    "RequiresDuplicateDetection": (False,),
    "ForwardTo": ("", None),
    "ForwardDeadLetteredMessagesTo": ("", None),
}


class InvalidConfig(ValueError):
    """The description of a namespace asks for something that is unknown or not honoured."""


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """One queue. Durations are in seconds; a time to live of None is for ever."""

    name: str
    requires_session: bool = False
    lock_seconds: float = 60.0
    max_delivery_count: int = 10
    time_to_live_seconds: float | None = None
    dead_letter_expired: bool = False


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """One namespace: a name and its queues, in the order of the file."""

    name: str
    queues: tuple[QueueConfig, ...]


def parse_namespaces(user_config: Mapping[str, Any]) -> tuple[NamespaceConfig, ...]:
    """Read the `UserConfig` object; raises InvalidConfig naming what cannot be honoured."""
    refuse_unknown(user_config, {"Namespaces", "Logging"}, "UserConfig")
    namespaces = tuple(parse_namespace(entry) for entry in user_config.get("Namespaces", ()))
    refuse_twins([namespace.name for namespace in namespaces], "namespace")
    return namespaces


def parse_namespace(document: Mapping[str, Any]) -> NamespaceConfig:
    """Read one namespace; topics are refused."""
    name = parse_name(document, "a namespace")
    refuse_unknown(document, {"Name", "Queues", "Topics"}, f"namespace {name!r}")
    if document.get("Topics"):
        raise InvalidConfig(f"namespace {name!r}: Topics are not honoured, only Queues")
    queues = tuple(parse_queue(entry) for entry in document.get("Queues", ()))
    refuse_twins([queue.name for queue in queues], f"namespace {name!r}: queue")
    return NamespaceConfig(name, queues)


def parse_queue(document: Mapping[str, Any]) -> QueueConfig:
    """Read one queue; properties that are left out take Service Bus's own defaults."""
    name = parse_name(document, "a queue")
    where = f"queue {name!r}"
    refuse_unknown(document, {"Name", "Properties"}, where)
    given = document.get("Properties", {})
    refuse_unknown(given, DEFAULTS, where)
    properties = {**DEFAULTS, **given}
    for key, harmless in NOT_HONOURED.items():
        if properties[key] not in harmless:
            raise InvalidConfig(f"{where}: {key} {properties[key]!r} is not honoured")
    time_to_live = properties["DefaultMessageTimeToLive"]
    return QueueConfig(
        name=name,
        requires_session=parse_flag(properties, "RequiresSession", where),
        lock_seconds=parse_lock_seconds(properties["LockDuration"], where),
        max_delivery_count=parse_delivery_count(properties["MaxDeliveryCount"], where),
        time_to_live_seconds=None if time_to_live is None else parse_seconds(time_to_live, where),
        dead_letter_expired=parse_flag(properties, "DeadLetteringOnMessageExpiration", where),
    )


def parse_name(document: Mapping[str, Any], what: str) -> str:
    """The `Name` of a namespace or queue."""
    name = document.get("Name")
    if not isinstance(name, str) or not name or "$" in name:
        raise InvalidConfig(f"{what} has no usable Name: {name!r}")
    return name


def parse_flag(properties: Mapping[str, Any], key: str, where: str) -> bool:
    """A JSON true or false."""
    value = properties[key]
    if not isinstance(value, bool):
        raise InvalidConfig(f"{where}: {key} must be true or false, not {value!r}")
    return value


def parse_delivery_count(value: Any, where: str) -> int:
    """How many failed deliveries a message may have."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidConfig(f"{where}: MaxDeliveryCount must be a whole number, not {value!r}")
    if not 1 <= value <= DELIVERY_COUNT_MAX:
        raise InvalidConfig(f"{where}: MaxDeliveryCount {value} is not in 1..{DELIVERY_COUNT_MAX}")
    return value


def parse_lock_seconds(value: Any, where: str) -> float:
    """How long a lock lasts unless it is renewed."""
    seconds = parse_seconds(value, where)
    if not 0 < seconds <= LOCK_SECONDS_MAX:
        raise InvalidConfig(f"{where}: LockDuration {value!r} is not in (0, PT5M]")
    return seconds


def parse_seconds(value: Any, where: str) -> float:
    """An ISO 8601 duration of days, hours, minutes and seconds, as seconds."""
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v is not None}
    if not parts:
        raise InvalidConfig(f"{where}: {value!r} is not an ISO 8601 duration such as PT30S")
    return sum(float(amount) * SECONDS_PER[unit] for unit, amount in parts.items())


def refuse_unknown(document: Mapping[str, Any], known: Any, where: str) -> None:
    """Raise InvalidConfig if a key is not among those known."""
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise InvalidConfig(f"{where}: not honoured: {', '.join(unknown)}")


def refuse_twins(names: list[str], what: str) -> None:
    """Raise InvalidConfig if a name occurs twice; Service Bus names ignore case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InvalidConfig(f"{what} {name!r} is declared twice")
        seen.add(name.lower())
