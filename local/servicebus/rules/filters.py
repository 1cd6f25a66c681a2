"""Rules of a subscription: filters that choose which of its topic's messages it takes.

Supported are the true, the false and the correlation filter. SQL filters and actions are not, but
for the two expressions by which Service Bus itself writes true and false.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from proton import Message, ProtonException

from local.servicebus.protocol.message_format import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    read_property,
    read_sections,
)

DEFAULT_RULE = "$Default"
ALWAYS, NEVER = "1=1", "1=0"


class UnsupportedRule(ValueError):
    """A kind of filter, or an action, that this broker does not carry out."""


class SystemProperty(StrEnum):
    """What a correlation filter may compare; the values are those of `Config.json`."""

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


@dataclass(frozen=True, slots=True)
class FilterableProperties:
    """What a filter can see of a message, never its body.

    System properties are text, and those left out are missing; application properties are as sent.
    """

    system: Mapping[SystemProperty, str]
    application: Mapping[str, Any] = field(default_factory=dict)


def read_filterable_properties(encoded: bytes) -> FilterableProperties:
    system: dict[SystemProperty, str] = {}
    application: dict[str, Any] = {}
    for section in read_sections(encoded):
        if section.code == PROPERTIES:
            for name, index in PROPERTY_INDEXES.items():
                value = read_property(encoded, section, index)
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
    raise UnsupportedRule(
        f"the SQL filter {expression!r} is not honoured, only {ALWAYS} and {NEVER}"
    )


@dataclass(frozen=True, slots=True)
class SubscriptionRule:
    name: str
    filter: Filter


MATCH_ALL = (SubscriptionRule(DEFAULT_RULE, TrueFilter()),)
