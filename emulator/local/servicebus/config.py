"""The entities of a namespace, read from the official emulator's `Config.json` format.

Only what the broker honours is accepted: any other key, kind of entity or value raises
InvalidConfig with the place where it was found. Ignored without effect: `Logging` and, on an
entity without duplicate detection, a `DuplicateDetectionHistoryTimeWindow` that would be honoured
(Microsoft's own sample has both).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local.servicebus.rules import (
    MATCH_ALL,
    CorrelationFilter,
    Filter,
    SubscriptionRule,
    SystemProperty,
    UnsupportedRule,
    sql_filter,
)

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

SUBSCRIPTION_DEFAULTS: dict[str, Any] = {
    "RequiresSession": False,
    "LockDuration": "PT1M",
    "MaxDeliveryCount": 10,
    "DefaultMessageTimeToLive": None,
    "DeadLetteringOnMessageExpiration": False,
    "ForwardTo": "",
    "ForwardDeadLetteredMessagesTo": "",
}
TOPIC_DEFAULTS: dict[str, Any] = {
    "DefaultMessageTimeToLive": None,
    "RequiresDuplicateDetection": False,
    "DuplicateDetectionHistoryTimeWindow": "PT10M",
}
QUEUE_DEFAULTS = SUBSCRIPTION_DEFAULTS | TOPIC_DEFAULTS
# Known to the format, but not honoured: only these values, which change nothing, are accepted.
UNSUPPORTED = {"ForwardDeadLetteredMessagesTo": ("", None)}
SUBSCRIPTIONS = "/Subscriptions/"  # between the names of a topic and of a subscription
FOR_EVER_SECONDS = 10_675_199 * 86_400.0  # the longest duration of .NET stands for no limit
CORRELATION_PROPERTIES = {*(one.value for one in SystemProperty), "Properties"}


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
    duplicate_window_seconds: float | None = None  # None: duplicates are not looked for
    forward_to: str | None = None  # the queue or topic that all its messages go on to


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """One subscription: its messages are in a queue whose name is the subscription's whole path."""

    queue: QueueConfig
    rules: tuple[SubscriptionRule, ...] = MATCH_ALL

    @property
    def topic(self) -> str:
        return self.queue.name.partition(SUBSCRIPTIONS)[0]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    subscriptions: tuple[SubscriptionConfig, ...] = ()
    time_to_live_seconds: float | None = None
    duplicate_window_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    name: str
    queues: tuple[QueueConfig, ...]
    topics: tuple[TopicConfig, ...] = ()


def subscription_path(topic: str, subscription: str) -> str:
    return f"{topic}{SUBSCRIPTIONS}{subscription}"


def parse_namespaces(user_config: Mapping[str, Any]) -> tuple[NamespaceConfig, ...]:
    """Read the `UserConfig` object; raises InvalidConfig naming what cannot be honoured."""
    refuse_unknown(user_config, {"Namespaces", "Logging"}, "UserConfig")
    namespaces = tuple(parse_namespace(entry) for entry in user_config.get("Namespaces", ()))
    refuse_repeated((namespace.name for namespace in namespaces), "namespace")
    return namespaces


def parse_namespace(document: Mapping[str, Any]) -> NamespaceConfig:
    """Read one namespace; a queue and a topic cannot share a name."""
    name = parse_name(document, "a namespace")
    refuse_unknown(document, {"Name", "Queues", "Topics"}, f"namespace {name!r}")
    queues = tuple(parse_queue(entry) for entry in document.get("Queues", ()))
    topics = tuple(parse_topic(entry) for entry in document.get("Topics", ()))
    names = [queue.name for queue in queues] + [topic.name for topic in topics]
    refuse_repeated(names, f"namespace {name!r}: entity")
    subscribed = [one.queue for topic in topics for one in topic.subscriptions]
    leads_to = {
        topic.name.lower(): [one.queue.name for one in topic.subscriptions] for topic in topics
    }
    for queue in (*queues, *subscribed):
        leads_to[queue.name.lower()] = [] if queue.forward_to is None else [queue.forward_to]
    for queue in (*queues, *subscribed):
        refuse_forward(queue, leads_to)
    return NamespaceConfig(name, queues, topics)


def refuse_forward(source: QueueConfig, leads_to: Mapping[str, Sequence[str]]) -> None:
    """Raise InvalidConfig if a queue forwards to what is not there, or to itself in the end.

    `leads_to` has the lower-case name of every queue, topic and subscription, and to which of these
    its messages go on.
    """
    if source.forward_to is None:
        return
    where, target = f"{source.name!r}: ForwardTo {source.forward_to!r}", source.forward_to.lower()
    if target not in leads_to or SUBSCRIPTIONS.lower() in target:
        raise InvalidConfig(f"{where} names no queue or topic of the namespace")
    seen: set[str] = set()
    left = [target]
    while left:
        name = left.pop()
        if name == source.name.lower():
            raise InvalidConfig(f"{where} leads back to where it began")
        if name not in seen:
            seen.add(name)
            left += [one.lower() for one in leads_to.get(name, ())]


def parse_queue(document: Mapping[str, Any]) -> QueueConfig:
    """Read one queue; properties that are left out take Service Bus's own defaults."""
    name = parse_name(document, "a queue")
    where = f"queue {name!r}"
    refuse_unknown(document, {"Name", "Properties"}, where)
    return read_queue(name, parse_properties(document, QUEUE_DEFAULTS, where), where)


def parse_topic(document: Mapping[str, Any]) -> TopicConfig:
    name = parse_name(document, "a topic")
    where = f"topic {name!r}"
    refuse_unknown(document, {"Name", "Properties", "Subscriptions"}, where)
    properties = parse_properties(document, TOPIC_DEFAULTS, where)
    given = document.get("Subscriptions", ())
    refuse_repeated((parse_name(one, "a subscription") for one in given), f"{where}: subscription")
    return TopicConfig(
        name,
        tuple(parse_subscription(entry, name) for entry in given),
        parse_time_to_live(properties["DefaultMessageTimeToLive"], where),
        parse_duplicate_window(properties, where),
    )


def parse_subscription(document: Mapping[str, Any], topic: str) -> SubscriptionConfig:
    path = subscription_path(topic, parse_name(document, "a subscription"))
    where = f"subscription {path!r}"
    refuse_unknown(document, {"Name", "Properties", "Rules"}, where)
    properties = parse_properties(document, SUBSCRIPTION_DEFAULTS, where)
    rules = tuple(parse_rule(entry, where) for entry in document.get("Rules", ()))
    refuse_repeated((rule.name for rule in rules), f"{where}: rule")
    queue = read_queue(path, TOPIC_DEFAULTS | properties, where)
    return SubscriptionConfig(queue, rules or MATCH_ALL)


def parse_properties(
    document: Mapping[str, Any], defaults: Mapping[str, Any], where: str
) -> dict[str, Any]:
    given = document.get("Properties", {})
    refuse_unknown(given, defaults, where)
    for key, harmless in UNSUPPORTED.items():
        if given.get(key) not in harmless:
            raise InvalidConfig(f"{where}: {key} {given[key]!r} is not honoured")
    return {**defaults, **given}


def read_queue(name: str, properties: Mapping[str, Any], where: str) -> QueueConfig:
    return QueueConfig(
        name=name,
        requires_session=parse_flag(properties, "RequiresSession", where),
        lock_seconds=parse_lock_seconds(properties["LockDuration"], where),
        max_delivery_count=parse_delivery_count(properties["MaxDeliveryCount"], where),
        time_to_live_seconds=parse_time_to_live(properties["DefaultMessageTimeToLive"], where),
        dead_letter_expired=parse_flag(properties, "DeadLetteringOnMessageExpiration", where),
        duplicate_window_seconds=parse_duplicate_window(properties, where),
        forward_to=parse_forward_to(properties, where),
    )


def parse_rule(document: Mapping[str, Any], owner: str) -> SubscriptionRule:
    """Read one rule; SQL filters and actions raise InvalidConfig."""
    name = parse_name(document, f"{owner}: a rule")
    where = f"{owner}: rule {name!r}"
    refuse_unknown(document, {"Name", "Properties"}, where)
    properties = document.get("Properties", {})
    refuse_unknown(properties, {"FilterType", "SqlFilter", "CorrelationFilter"}, where)
    try:
        return SubscriptionRule(name, parse_filter(properties, where))
    except UnsupportedRule as error:
        raise InvalidConfig(f"{where}: {error}") from error


def parse_filter(properties: Mapping[str, Any], where: str) -> Filter:
    match properties.get("FilterType"):
        case "Sql":
            return sql_filter(str(properties.get("SqlFilter", {}).get("SqlExpression")))
        case "Correlation":
            return parse_correlation(properties.get("CorrelationFilter", {}), where)
        case other:
            raise InvalidConfig(f"{where}: FilterType {other!r} is neither Correlation nor Sql")


def parse_correlation(document: Mapping[str, Any], where: str) -> CorrelationFilter:
    refuse_unknown(document, CORRELATION_PROPERTIES, where)
    system = {
        name: document[name] for name in SystemProperty if document.get(name) not in (None, "")
    }
    for name, value in system.items():
        if not isinstance(value, str):
            raise InvalidConfig(f"{where}: {name} must be text, not {value!r}")
    try:
        return CorrelationFilter(system, document.get("Properties") or {})
    except ValueError as error:
        raise InvalidConfig(f"{where}: {error}") from error


# Values, each refused with the place where it was found


def parse_name(document: Mapping[str, Any], what: str) -> str:
    name = document.get("Name")
    if not isinstance(name, str) or not name or "$" in name.removeprefix("$Default"):
        raise InvalidConfig(f"{what} has no usable Name: {name!r}")
    return name


def parse_flag(properties: Mapping[str, Any], key: str, where: str) -> bool:
    value = properties[key]
    if not isinstance(value, bool):
        raise InvalidConfig(f"{where}: {key} must be true or false, not {value!r}")
    return value


def parse_delivery_count(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidConfig(f"{where}: MaxDeliveryCount must be a whole number, not {value!r}")
    if not 1 <= value <= DELIVERY_COUNT_MAX:
        raise InvalidConfig(f"{where}: MaxDeliveryCount {value} is not in 1..{DELIVERY_COUNT_MAX}")
    return value


def parse_lock_seconds(value: Any, where: str) -> float:
    seconds = parse_seconds(value, where)
    if not 0 < seconds <= LOCK_SECONDS_MAX:
        raise InvalidConfig(f"{where}: LockDuration {value!r} is not in (0, PT5M]")
    return seconds


def parse_time_to_live(value: Any, where: str) -> float | None:
    seconds = None if value is None else parse_seconds(value, where)
    return None if seconds is None or seconds >= FOR_EVER_SECONDS else seconds


def parse_duplicate_window(properties: Mapping[str, Any], where: str) -> float | None:
    value = properties["DuplicateDetectionHistoryTimeWindow"]
    seconds = parse_seconds(value, where)
    if not DUPLICATE_WINDOW_SECONDS_MIN <= seconds <= DUPLICATE_WINDOW_SECONDS_MAX:
        key = "DuplicateDetectionHistoryTimeWindow"
        raise InvalidConfig(f"{where}: {key} {value!r} is not in PT20S..P7D")
    return seconds if parse_flag(properties, "RequiresDuplicateDetection", where) else None


def parse_forward_to(properties: Mapping[str, Any], where: str) -> str | None:
    """The name of the entity; management clients write it behind the address of the namespace."""
    value = properties["ForwardTo"] or ""
    if not isinstance(value, str):
        raise InvalidConfig(f"{where}: ForwardTo must be a name, not {value!r}")
    _, scheme, rest = value.rpartition("://")
    name = (rest.partition("/")[2] if scheme else rest).strip("/")
    if name and properties["RequiresSession"]:
        reason = "what requires sessions cannot forward. A subscription that forwards needs none"
        raise InvalidConfig(f"{where}: ForwardTo {name!r}: {reason}")
    return name or None


def parse_seconds(value: Any, where: str) -> float:
    """An ISO 8601 duration of days, hours, minutes and seconds, as seconds."""
    match = DURATION.fullmatch(value) if isinstance(value, str) else None
    parts = {} if match is None else {k: v for k, v in match.groupdict().items() if v is not None}
    if not parts:
        raise InvalidConfig(f"{where}: {value!r} is not an ISO 8601 duration such as PT30S")
    return sum(float(amount) * SECONDS_PER[unit] for unit, amount in parts.items())


def refuse_unknown(document: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise InvalidConfig(f"{where}: not honoured: {', '.join(unknown)}")


def refuse_repeated(names: Iterable[str], what: str) -> None:
    """Raise InvalidConfig if a name occurs twice; Service Bus names ignore case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise InvalidConfig(f"{what} {name!r} is declared twice")
        seen.add(name.lower())
