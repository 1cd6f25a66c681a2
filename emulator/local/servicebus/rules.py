"""Rules of a subscription: filters that choose which of its topic's messages it takes.

Supported are the true, the false and the correlation filter. SQL filters and actions are not, but
for the two expressions by which Service Bus itself writes true and false. Rules are stored in the
form in which clients ask for them in requests to `$management`:
https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response#rule-operations
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proton import Described, Message, ProtonException, ulong

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.amqp.message_format import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    offsets_of,
    read_property,
    read_sections,
)

DEFAULT_RULE = "$Default"
ALWAYS, NEVER = "1=1", "1=0"


class UnsupportedRule(ValueError):
    """A kind of filter, or an action, that this broker does not carry out."""


class SystemProperty(StrEnum):
    """The properties that a correlation filter may compare, in the order in which they are listed.

    The values are those of `Config.json`.
    """

    CORRELATION_ID = "CorrelationId"
    MESSAGE_ID = "MessageId"
    TO = "To"
    REPLY_TO = "ReplyTo"
    LABEL = "Label"  # AMQP's subject
    SESSION_ID = "SessionId"
    REPLY_TO_SESSION_ID = "ReplyToSessionId"
    CONTENT_TYPE = "ContentType"


PROPERTY_INDEXES = {  # in the properties section (AMQP 1.0 part 3, section 3.2.4)
    SystemProperty.MESSAGE_ID: 0,
    SystemProperty.TO: 2,
    SystemProperty.LABEL: 3,
    SystemProperty.REPLY_TO: 4,
    SystemProperty.CORRELATION_ID: 5,
    SystemProperty.CONTENT_TYPE: 6,
    SystemProperty.SESSION_ID: 10,
    SystemProperty.REPLY_TO_SESSION_ID: 12,
}

# Descriptors of the described types in a list of rules; those of filters have a digit less.
RULE_CODE, NO_ACTION_CODE = 0x13700000004, 0x13700000005
TRUE_CODE, FALSE_CODE, CORRELATION_CODE = 0x1370000007, 0x1370000008, 0x1370000009
# As clients name the properties in a request.
CORRELATION_KEYS = {one.name.lower().replace("_", "-"): one for one in SystemProperty}


@dataclass(frozen=True, slots=True)
class FilterableProperties:
    """The properties of a message that a filter can see, never its body.

    System properties are text, and those left out are missing; application properties are as sent.
    """

    system: Mapping[SystemProperty, str]
    application: Mapping[str, Any] = field(default_factory=dict)


def read_filterable_properties(encoded: bytes) -> FilterableProperties:
    system: dict[SystemProperty, str] = {}
    application: dict[str, Any] = {}
    for section in read_sections(encoded):
        if section.code == PROPERTIES:
            fields = offsets_of(encoded, section.value)
            for name, index in PROPERTY_INDEXES.items():
                value = read_property(encoded, fields, index)
                if value is not None:
                    system[name] = value
        elif section.code == APPLICATION_PROPERTIES:
            message = Message()
            try:
                message.decode(encoded[section.start : section.end])
            except (ProtonException, TypeError, ValueError):
                continue  # keys that are not text, as they must be (section 3.2.5)
            sent: dict[Any, Any] = message.properties or {}
            application = {str(key): value for key, value in sent.items()}
    return FilterableProperties(system, application)


@dataclass(frozen=True, slots=True)
class TrueFilter:
    def matches(self, properties: FilterableProperties) -> bool:  # noqa: ARG002
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    def matches(self, properties: FilterableProperties) -> bool:  # noqa: ARG002
        return False


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Takes what equals it in every property it names; text is compared with its case."""

    system: Mapping[SystemProperty, str]
    application: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.system and not self.application:
            raise ValueError("a correlation filter must name a property")

    def matches(self, properties: FilterableProperties) -> bool:
        missing = object()
        system, application = properties.system, properties.application
        return all(system.get(name) == value for name, value in self.system.items()) and all(
            application.get(key, missing) == value for key, value in self.application.items()
        )


type Filter = TrueFilter | FalseFilter | CorrelationFilter


def sql_filter(expression: str) -> Filter:
    """The filter an SQL expression stands for; raises UnsupportedRule for all but 1=1 and 1=0."""
    match expression.replace(" ", ""):
        case "1=1":
            return TrueFilter()
        case "1=0":
            return FalseFilter()
    only = f"only {ALWAYS} and {NEVER}"
    raise UnsupportedRule(f"the SQL filter {expression!r} is not honoured, {only}")


@dataclass(frozen=True, slots=True)
class SubscriptionRule:
    name: str
    filter: Filter


MATCH_ALL = (SubscriptionRule(DEFAULT_RULE, TrueFilter()),)


def read_rule(name: str, description: Any) -> SubscriptionRule:
    """A rule as asked for; raises UnsupportedRule, ValueError for an empty filter, or TypeError."""
    require_map(description, "rule-description")
    if description.get("sql-rule-action") is not None:
        raise UnsupportedRule("rule actions are not honoured")
    sql = description.get("sql-filter")
    if sql is not None:
        require_map(sql, "sql-filter")
        return SubscriptionRule(name, sql_filter(str(sql["expression"])))
    document = description.get("correlation-filter") or {}
    require_map(document, "correlation-filter")
    require_map(document.get("properties") or {}, "properties")
    named = {name: document.get(key) for key, name in CORRELATION_KEYS.items()}
    system = {name: str(value) for name, value in named.items() if value is not None}
    return SubscriptionRule(name, CorrelationFilter(system, document.get("properties") or {}))


def require_map(value: Any, name: str) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} is no map")


def write_rule(rule: SubscriptionRule) -> dict[str, Any]:
    match rule.filter:
        case TrueFilter():
            written = Described(ulong(TRUE_CODE), [])
        case FalseFilter():
            written = Described(ulong(FALSE_CODE), [])
        case CorrelationFilter(system=system, application=application):
            values: list[Any] = [system.get(name) for name in CORRELATION_KEYS.values()]
            values.append(dict(application))
            written = Described(ulong(CORRELATION_CODE), values)
    no_action = Described(ulong(NO_ACTION_CODE), [])
    return {"rule-description": Described(ulong(RULE_CODE), [written, no_action, rule.name])}


def describe_filter(given: Filter) -> dict[str, Any]:
    """A filter as a client asks for it: what `read_rule` reads."""
    match given:
        case TrueFilter():
            return {"sql-filter": {"expression": ALWAYS}}
        case FalseFilter():
            return {"sql-filter": {"expression": NEVER}}
        case CorrelationFilter(system=system, application=application):
            named = {key: system[one] for key, one in CORRELATION_KEYS.items() if one in system}
            return {"correlation-filter": {**named, "properties": dict(application)}}


def encode_rules(rules: Sequence[SubscriptionRule]) -> bytes:
    """Rules as bytes; values in a filter keep their AMQP types."""
    return Message(body=[[rule.name, describe_filter(rule.filter)] for rule in rules]).encode()


def decode_rules(encoded: bytes) -> list[SubscriptionRule]:
    message = Message()
    message.decode(encoded)
    rules: Any = message.body
    return [read_rule(name, description) for name, description in rules]


class RuleSet:
    """The rules of one subscription; `save` is given all of them when a client has changed them.

    From then on the declared ones count no more.
    """

    def __init__(
        self,
        rules: Sequence[SubscriptionRule],
        save: Callable[[Sequence[SubscriptionRule]], None] = lambda _: None,
    ) -> None:
        self._rules = {rule.name.lower(): rule for rule in rules}
        self._save = save

    @property
    def rules(self) -> list[SubscriptionRule]:
        """The rules in the order in which they were added."""
        return list(self._rules.values())

    def add(self, rule: SubscriptionRule) -> None:
        """Take from now on what this rule matches, too; refused if its name is taken."""
        if rule.name.lower() in self._rules:
            description = f"There is a rule {rule.name!r} already"
            raise AmqpError(ErrorCondition.ENTITY_ALREADY_EXISTS, description)
        self._rules[rule.name.lower()] = rule
        self._save(self.rules)

    def remove(self, name: str) -> None:
        """Remove the rule of this name; refused if there is none."""
        if self._rules.pop(name.lower(), None) is None:
            raise AmqpError(ErrorCondition.NOT_FOUND, f"There is no rule {name!r}")
        self._save(self.rules)

    def match(self, encoded: bytes) -> bool:
        filters = [rule.filter for rule in self._rules.values()]
        if any(isinstance(one, TrueFilter) for one in filters):
            return True  # without decoding the message's properties
        if not filters:
            return False
        properties = read_filterable_properties(encoded)
        return any(one.matches(properties) for one in filters)
