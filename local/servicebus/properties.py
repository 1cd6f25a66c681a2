"""Values of a declaration: names, flags, durations and counts, each refused with its place."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas
LOCK_SECONDS_MAX = 300.0
DELIVERY_COUNT_MAX = 2000
DUPLICATE_WINDOW_SECONDS_MIN = 20.0
DUPLICATE_WINDOW_SECONDS_MAX = 7 * 86_400.0

DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
SECONDS_PER = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0}


class InvalidConfig(ValueError):
    """The description of a namespace asks for something that is unknown or not honoured."""


def parse_name(document: Mapping[str, Any], what: str) -> str:
    """The `Name` of a namespace, an entity or a rule."""
    name = document.get("Name")
    if not isinstance(name, str) or not name or "$" in name.removeprefix("$Default"):
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


def parse_time_to_live(value: Any, where: str) -> float | None:
    """How long a message may wait; None is for ever."""
    return None if value is None else parse_seconds(value, where)


def parse_duplicate_window(properties: Mapping[str, Any], where: str) -> float | None:
    """How long a message id is remembered; None where duplicates are not looked for."""
    if not parse_flag(properties, "RequiresDuplicateDetection", where):
        return None
    value = properties["DuplicateDetectionHistoryTimeWindow"]
    seconds = parse_seconds(value, where)
    if not DUPLICATE_WINDOW_SECONDS_MIN <= seconds <= DUPLICATE_WINDOW_SECONDS_MAX:
        key = "DuplicateDetectionHistoryTimeWindow"
        raise InvalidConfig(f"{where}: {key} {value!r} is not in PT20S..P7D")
    return seconds


def parse_seconds(value: Any, where: str) -> float:
    """An ISO 8601 duration of days, hours, minutes and seconds, as seconds."""
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v is not None}
    if not parts:
        raise InvalidConfig(f"{where}: {value!r} is not an ISO 8601 duration such as PT30S")
    return sum(float(amount) * SECONDS_PER[unit] for unit, amount in parts.items())


def refuse_unknown(document: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Raise InvalidConfig if a key is not among those known."""
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise InvalidConfig(f"{where}: not honoured: {', '.join(unknown)}")


def refuse_twins(names: Iterable[str], what: str) -> None:
    """Raise InvalidConfig if a name occurs twice; Service Bus names ignore case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InvalidConfig(f"{what} {name!r} is declared twice")
        seen.add(name.lower())
