"""The XML of Service Bus's management API: descriptions of entities and rules in entries of Atom.

A description becomes what the config would hold for it, so that both are checked by the same code,
and is written from what the broker goes by.
https://learn.microsoft.com/rest/api/servicebus/entities
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from proton import timestamp

from local.servicebus.config import InvalidConfig, QueueConfig, TopicConfig
from local.servicebus.rules import (
    ALWAYS,
    NEVER,
    CorrelationFilter,
    FalseFilter,
    Filter,
    SubscriptionRule,
    SystemProperty,
    TrueFilter,
    UnsupportedRule,
    sql_filter,
)

ATOM = "http://www.w3.org/2005/Atom"
SERVICE_BUS = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
INSTANCE, SCHEMA = (f"http://www.w3.org/2001/XMLSchema{end}" for end in ("-instance", ""))
FOR_EVER = "P10675199DT2H48M5.4775807S"  # the longest duration .NET has
TEXTS = {"true": True, "false": False}
# What descriptions hold beyond the config's properties, and what may be asked for: anything where
# it is None, because it has no effect here or is only ever read. Everything else is refused.
HARMLESS: dict[str, tuple[str, ...] | None] = {
    **dict.fromkeys(("EnableBatchedOperations", "SupportOrdering", "MaxSizeInMegabytes")),
    **dict.fromkeys(("MaxMessageSizeInKilobytes", "DeadLetteringOnFilterEvaluationExceptions")),
    **dict.fromkeys(("SizeInBytes", "MessageCount", "SubscriptionCount", "CountDetails")),
    **dict.fromkeys(("SqlFilterCount", "CorrelationFilterCount")),
    **dict.fromkeys(("CreatedAt", "UpdatedAt", "AccessedAt", "EntityAvailabilityStatus")),
    **dict.fromkeys(("EnablePartitioning", "EnableExpress", "IsAnonymousAccessible"), ("false",)),
    **dict.fromkeys(("EnableSubscriptionPartitioning",), ("false",)),
    **dict.fromkeys(("FilteringMessagesBeforePublishing",), ("false",)),
    **dict.fromkeys(("AuthorizationRules", "UserMetadata"), ("",)),
    "Status": ("Active",),
    "AutoDeleteOnIdle": (FOR_EVER, "P10675199DT2H48M5.477539S", "P10675198D"),
}


def read_description(body: bytes, kind: str) -> Element:
    """The description in an entry, such as a QueueDescription; raises InvalidConfig."""
    try:
        entry = ElementTree.fromstring(body)  # noqa: S314 - expat bounds what entities expand to
    except ElementTree.ParseError as error:
        raise InvalidConfig(f"the body is no XML: {error}") from error
    found = entry.find(f"{{{ATOM}}}content/{{{SERVICE_BUS}}}{kind}")
    if found is None:
        raise InvalidConfig(f"the body holds no {kind}")
    return found


def read_properties(description: Element) -> dict[str, Any]:
    """Return a description as the config's Properties; raises InvalidConfig if not honoured."""
    properties: dict[str, Any] = {}
    for element in description:
        name, text = local_name(element), (element.text or "").strip()
        if name == "DefaultRuleDescription":
            continue
        if name in HARMLESS:
            taken = HARMLESS[name]
            if taken is not None and (text not in taken or len(element)):
                raise InvalidConfig(f"not honoured: {name} {text!r}".removesuffix(" ''"))
        elif name == "MaxDeliveryCount" and text.isdigit():
            properties[name] = int(text)
        elif text:
            properties[name] = TEXTS.get(text.lower(), text)
    return properties


def read_rule_description(description: Element, name: str) -> SubscriptionRule:
    """A rule; raises UnsupportedRule, or InvalidConfig."""
    action = description.find(f"{{{SERVICE_BUS}}}Action")
    if action is not None and not type_of(action).endswith("EmptyRuleAction"):
        raise UnsupportedRule("rule actions are not honoured")
    return SubscriptionRule(name, read_filter(description.find(f"{{{SERVICE_BUS}}}Filter")))


def read_filter(element: Element | None) -> Filter:
    match None if element is None else type_of(element):
        case "CorrelationFilter" if element is not None:
            texts = {local_name(one): (one.text or "") for one in element}
            system = {name: texts[name] for name in SystemProperty if texts.get(name)}
            pairs = element.findall(f"{{{SERVICE_BUS}}}Properties/*")
            try:
                return CorrelationFilter(system, dict(map(read_pair, pairs)))
            except ValueError as error:
                raise InvalidConfig(str(error)) from error
        case "SqlFilter" if element is not None:
            return sql_filter(element.findtext(f"{{{SERVICE_BUS}}}SqlExpression") or "")
        case "FalseFilter":
            return FalseFilter()
        case "TrueFilter" | None:
            return TrueFilter()
        case other:
            raise UnsupportedRule(f"the filter {other} is not honoured")


def read_pair(pair: Element) -> tuple[str, Any]:
    """A key and its value, which says of which of the types of XML Schema it is."""
    key = pair.findtext(f"{{{SERVICE_BUS}}}Key") or ""
    value = pair.find(f"{{{SERVICE_BUS}}}Value")
    text = "" if value is None else value.text or ""
    match None if value is None else type_of(value):
        case "string" | None:
            return key, text
        case "int" | "long":
            return key, int(text)
        case "double":
            return key, float(text)
        case "boolean":
            return key, text.lower() == "true"
        case "dateTime":
            moment = datetime.fromisoformat(text)
            return key, timestamp(
                int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
            )
        case other:
            raise UnsupportedRule(f"the property {key!r} is of type {other}, which is not honoured")


def write_queue(
    config: QueueConfig, kind: str, depth: Mapping[str, int], size: int, *, host: str
) -> Element:
    """The description of a queue or a subscription, with how many messages it holds.

    A subscription tells no size: what it holds counts for its topic. `host` is the namespace's, of
    which clients want the address before the name of what is forwarded to.
    """
    window, target = config.duplicate_window_seconds, config.forward_to
    description = Element(f"{{{SERVICE_BUS}}}{kind}Description")
    values = {
        "LockDuration": write_duration(config.lock_seconds),
        "RequiresDuplicateDetection": window is not None if kind == "Queue" else None,
        "RequiresSession": config.requires_session,
        "DefaultMessageTimeToLive": write_duration(config.time_to_live_seconds),
        "DeadLetteringOnMessageExpiration": config.dead_letter_expired,
        "DuplicateDetectionHistoryTimeWindow": None if window is None else write_duration(window),
        "MaxDeliveryCount": config.max_delivery_count,
        "EnableBatchedOperations": True,
        "SizeInBytes": size if kind == "Queue" else None,
        "MessageCount": sum(depth.values()),
        "Status": "Active",
        "ForwardTo": None if target is None else f"sb://{host}/{target}",
        "AutoDeleteOnIdle": FOR_EVER,
        "EntityAvailabilityStatus": "Available",
    }
    add_values(description, values)
    add_counts(description, depth)
    return description


def write_topic(
    config: TopicConfig,
    subscriptions: Sequence[Sequence[SubscriptionRule]],
    depth: Mapping[str, int],
    size: int,
) -> Element:
    """The description of a topic, given the rules of each subscription."""
    window = config.duplicate_window_seconds
    filters = Counter(type(rule.filter) for rules in subscriptions for rule in rules)
    correlation = filters.pop(CorrelationFilter, 0)
    description = Element(f"{{{SERVICE_BUS}}}TopicDescription")
    values = {
        "DefaultMessageTimeToLive": write_duration(config.time_to_live_seconds),
        "RequiresDuplicateDetection": window is not None,
        "DuplicateDetectionHistoryTimeWindow": None if window is None else write_duration(window),
        "EnableBatchedOperations": True,
        "SizeInBytes": size,
        "Status": "Active",
        "SubscriptionCount": len(subscriptions),
        # True and false are SQL filters, too.
        "SqlFilterCount": filters.total(),
        "CorrelationFilterCount": correlation,
        "AutoDeleteOnIdle": FOR_EVER,
        "EntityAvailabilityStatus": "Available",
    }
    add_values(description, values)
    add_counts(description, depth)
    return description


def add_counts(description: Element, depth: Mapping[str, int]) -> None:
    """Add the counts: locked and deferred messages are active, as in Azure; none is in transfer."""
    details = SubElement(description, f"{{{SERVICE_BUS}}}CountDetails")
    counts = {
        "ActiveMessageCount": depth["active"] + depth["locked"] + depth["deferred"],
        "DeadLetterMessageCount": depth["dead_lettered"],
        "ScheduledMessageCount": depth["scheduled"],
        "TransferMessageCount": 0,
        "TransferDeadLetterMessageCount": 0,
    }
    for name, count in counts.items():
        SubElement(details, f"{{{COUNTS}}}{name}").text = str(count)


def write_rule_description(rule: SubscriptionRule) -> Element:
    description = Element(f"{{{SERVICE_BUS}}}RuleDescription")
    kind = type(rule.filter).__name__
    written = SubElement(description, f"{{{SERVICE_BUS}}}Filter", {f"{{{INSTANCE}}}type": kind})
    if isinstance(rule.filter, CorrelationFilter):
        add_values(written, {name.value: text for name, text in rule.filter.system.items()})
        pairs = SubElement(written, f"{{{SERVICE_BUS}}}Properties")
        for key, value in rule.filter.application.items():
            pair = SubElement(pairs, f"{{{SERVICE_BUS}}}KeyValueOfstringanyType")
            add_values(pair, {"Key": key})
            pair.append(write_typed(value))
    else:
        expression = ALWAYS if isinstance(rule.filter, TrueFilter) else NEVER
        add_values(written, {"SqlExpression": expression, "CompatibilityLevel": 20})
    nothing = {f"{{{INSTANCE}}}type": "EmptyRuleAction"}
    SubElement(description, f"{{{SERVICE_BUS}}}Action", nothing)
    add_values(description, {"Name": rule.name})
    return description


def write_typed(value: Any) -> Element:
    match value:
        case bool():
            kind, text = "boolean", str(value).lower()
        case timestamp():
            kind, text = "dateTime", datetime.fromtimestamp(value / 1000, UTC).isoformat()
        case int():
            kind, text = ("int" if -(2**31) <= value < 2**31 else "long"), str(value)
        case float():
            kind, text = "double", repr(value)
        case _:
            kind, text = "string", str(value)
    # The prefix stands in a value, where ElementTree does not look for it.
    attributes = {"xmlns:d6p1": SCHEMA, f"{{{INSTANCE}}}type": f"d6p1:{kind}"}
    element = Element(f"{{{SERVICE_BUS}}}Value", attributes)
    element.text = text
    return element


def write_entry(url: str, title: str, description: Element) -> Element:
    entry = Element(f"{{{ATOM}}}entry")
    for name, text in (("id", url), ("title", title)):
        SubElement(entry, f"{{{ATOM}}}{name}").text = text
    SubElement(entry, f"{{{ATOM}}}content", {"type": "application/xml"}).append(description)
    return entry


def write_feed(url: str, entries: Iterable[Element], next_url: str | None) -> Element:
    feed = Element(f"{{{ATOM}}}feed")
    for name, text in (("id", url), ("title", "")):
        SubElement(feed, f"{{{ATOM}}}{name}").text = text
    SubElement(feed, f"{{{ATOM}}}link", {"rel": "self", "href": url})
    if next_url is not None:
        SubElement(feed, f"{{{ATOM}}}link", {"rel": "next", "href": next_url})
    feed.extend(entries)
    return feed


def add_values(parent: Element, values: Mapping[str, Any]) -> None:
    """Add an element for each value that is not None."""
    for name, value in values.items():
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            SubElement(parent, f"{{{SERVICE_BUS}}}{name}").text = text


def write_duration(seconds: float | None) -> str:
    if seconds is None:
        return FOR_EVER
    days, rest = divmod(seconds, 86_400)
    return f"P{int(days)}DT{rest:.7f}".rstrip("0").rstrip(".") + "S"


def local_name(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def type_of(element: Element) -> str:
    """Return what an element says of its type, without the prefix."""
    return element.get(f"{{{INSTANCE}}}type", "").rpartition(":")[2]
