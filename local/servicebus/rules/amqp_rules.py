"""Rules as clients write them in requests to `$management`, and as they are listed.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-amqp-request-response#rule-operations

They are stored in the form in which clients ask for them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proton import Described, Message, ulong

from local.servicebus.rules.filters import (
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

# Descriptors of the described types in a list of rules; those of filters have a digit less.
RULE_CODE, NO_ACTION_CODE = 0x13700000004, 0x13700000005
TRUE_CODE, FALSE_CODE, CORRELATION_CODE = 0x1370000007, 0x1370000008, 0x1370000009
CORRELATION_KEYS = {  # in the order in which a correlation filter is listed
    "correlation-id": SystemProperty.CORRELATION_ID,
    "message-id": SystemProperty.MESSAGE_ID,
    "to": SystemProperty.TO,
    "reply-to": SystemProperty.REPLY_TO,
    "label": SystemProperty.LABEL,
    "session-id": SystemProperty.SESSION_ID,
    "reply-to-session-id": SystemProperty.REPLY_TO_SESSION_ID,
    "content-type": SystemProperty.CONTENT_TYPE,
}


def read_rule(name: str, description: Mapping[str, Any]) -> SubscriptionRule:
    """A rule as asked for; raises UnsupportedRule, or ValueError for an empty filter."""
    if description.get("sql-rule-action") is not None:
        raise UnsupportedRule("rule actions are not honoured")
    sql = description.get("sql-filter")
    if sql is not None:
        return SubscriptionRule(name, sql_filter(str(sql["expression"])))
    document = description.get("correlation-filter") or {}
    named = {name: document.get(key) for key, name in CORRELATION_KEYS.items()}
    system = {name: str(value) for name, value in named.items() if value is not None}
    return SubscriptionRule(name, CorrelationFilter(system, document.get("properties") or {}))


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
    body: Any = [[rule.name, describe_filter(rule.filter)] for rule in rules]
    return Message(body=body).encode()


def decode_rules(encoded: bytes) -> list[SubscriptionRule]:
    message = Message()
    message.decode(encoded)
    rules: Any = message.body
    return [read_rule(name, description) for name, description in rules]
