"""What a namespace holds, read from the official emulator's `Config.json` format.

Only what the engine keeps is accepted: any other key, kind of entity or value raises InvalidConfig
with the place where it was found. Ignored without effect: `Logging` and, on an entity without
duplicate detection, `DuplicateDetectionHistoryTimeWindow` (Microsoft's own sample carries both).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local.servicebus.properties import (
    InvalidConfig,
    parse_delivery_count,
    parse_duplicate_window,
    parse_flag,
    parse_lock_seconds,
    parse_name,
    parse_time_to_live,
    refuse_twins,
    refuse_unknown,
)
from local.servicebus.rules import EVERYTHING, Rule
from local.servicebus.rules_config import parse_rule

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
# Known to the format, not kept by the engine: only these values change nothing and may stand.
NOT_HONOURED = {"ForwardTo": ("", None), "ForwardDeadLetteredMessagesTo": ("", None)}


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


@dataclass(frozen=True, slots=True)
class SubscriptionConfig:
    """One subscription: what it keeps is a queue whose name is the subscription's whole path."""

    queue: QueueConfig
    rules: tuple[Rule, ...] = EVERYTHING


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One topic with its subscriptions. Durations are in seconds."""

    name: str
    subscriptions: tuple[SubscriptionConfig, ...] = ()
    time_to_live_seconds: float | None = None
    duplicate_window_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NamespaceConfig:
    """One namespace: a name, its queues and its topics, in the order of the file."""

    name: str
    queues: tuple[QueueConfig, ...]
    topics: tuple[TopicConfig, ...] = ()


def subscription_path(topic: str, subscription: str) -> str:
    """Where a subscription is received from."""
    return f"{topic}/Subscriptions/{subscription}"


def parse_namespaces(user_config: Mapping[str, Any]) -> tuple[NamespaceConfig, ...]:
    """Read the `UserConfig` object; raises InvalidConfig naming what cannot be honoured."""
    refuse_unknown(user_config, {"Namespaces", "Logging"}, "UserConfig")
    namespaces = tuple(parse_namespace(entry) for entry in user_config.get("Namespaces", ()))
    refuse_twins((namespace.name for namespace in namespaces), "namespace")
    return namespaces


def parse_namespace(document: Mapping[str, Any]) -> NamespaceConfig:
    """Read one namespace; a queue and a topic cannot share a name."""
    name = parse_name(document, "a namespace")
    refuse_unknown(document, {"Name", "Queues", "Topics"}, f"namespace {name!r}")
    queues = tuple(parse_queue(entry) for entry in document.get("Queues", ()))
    topics = tuple(parse_topic(entry) for entry in document.get("Topics", ()))
    names = [queue.name for queue in queues] + [topic.name for topic in topics]
    refuse_twins(names, f"namespace {name!r}: entity")
    return NamespaceConfig(name, queues, topics)


def parse_queue(document: Mapping[str, Any]) -> QueueConfig:
    """Read one queue; properties that are left out take Service Bus's own defaults."""
    name = parse_name(document, "a queue")
    where = f"queue {name!r}"
    refuse_unknown(document, {"Name", "Properties"}, where)
    return read_queue(name, parse_properties(document, QUEUE_DEFAULTS, where), where)


def parse_topic(document: Mapping[str, Any]) -> TopicConfig:
    """Read one topic and its subscriptions."""
    name = parse_name(document, "a topic")
    where = f"topic {name!r}"
    refuse_unknown(document, {"Name", "Properties", "Subscriptions"}, where)
    properties = parse_properties(document, TOPIC_DEFAULTS, where)
    given = document.get("Subscriptions", ())
    refuse_twins((parse_name(one, "a subscription") for one in given), f"{where}: subscription")
    return TopicConfig(
        name,
        tuple(parse_subscription(entry, name) for entry in given),
        parse_time_to_live(properties["DefaultMessageTimeToLive"], where),
        parse_duplicate_window(properties, where),
    )


def parse_subscription(document: Mapping[str, Any], topic: str) -> SubscriptionConfig:
    """Read one subscription; without rules it takes everything."""
    path = subscription_path(topic, parse_name(document, "a subscription"))
    where = f"subscription {path!r}"
    refuse_unknown(document, {"Name", "Properties", "Rules"}, where)
    properties = parse_properties(document, SUBSCRIPTION_DEFAULTS, where)
    rules = tuple(parse_rule(entry, where) for entry in document.get("Rules", ()))
    refuse_twins((rule.name for rule in rules), f"{where}: rule")
    queue = read_queue(path, TOPIC_DEFAULTS | properties, where)
    return SubscriptionConfig(queue, rules or EVERYTHING)


def parse_properties(
    document: Mapping[str, Any], defaults: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """The `Properties` of an entity, those left out filled in."""
    given = document.get("Properties", {})
    refuse_unknown(given, defaults, where)
    for key, harmless in NOT_HONOURED.items():
        if given.get(key) not in harmless:
            raise InvalidConfig(f"{where}: {key} {given[key]!r} is not honoured")
    return {**defaults, **given}


def read_queue(name: str, properties: Mapping[str, Any], where: str) -> QueueConfig:
    """A queue from all of its properties."""
    return QueueConfig(
        name=name,
        requires_session=parse_flag(properties, "RequiresSession", where),
        lock_seconds=parse_lock_seconds(properties["LockDuration"], where),
        max_delivery_count=parse_delivery_count(properties["MaxDeliveryCount"], where),
        time_to_live_seconds=parse_time_to_live(properties["DefaultMessageTimeToLive"], where),
        dead_letter_expired=parse_flag(properties, "DeadLetteringOnMessageExpiration", where),
        duplicate_window_seconds=parse_duplicate_window(properties, where),
    )


__all__ = [
    "InvalidConfig",
    "NamespaceConfig",
    "QueueConfig",
    "SubscriptionConfig",
    "TopicConfig",
    "parse_namespaces",
    "subscription_path",
]
