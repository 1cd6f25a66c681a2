"""Rules as `$management` writes them (the request-response page of the service's documentation).

They are kept in the form in which clients ask for them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from proton import Described, Message, ulong

from local.servicebus.rules import (
    ALWAYS,
    NEVER,
    CorrelationFilter,
    FalseFilter,
    Filter,
    NotHonoured,
    Rule,
    TrueFilter,
    sql_filter,
)
from local.servicebus.traits import Trait

RULE_CODE, NO_ACTION_CODE = 0x13700000004, 0x13700000005
TRUE_CODE, FALSE_CODE, CORRELATION_CODE = 0x1370000007, 0x1370000008, 0x1370000009
TRAIT_KEYS = {  # in the order in which a correlation filter is listed
    "correlation-id": Trait.CORRELATION_ID,
    "message-id": Trait.MESSAGE_ID,
    "to": Trait.TO,
    "reply-to": Trait.REPLY_TO,
    "label": Trait.LABEL,
    "session-id": Trait.SESSION_ID,
    "reply-to-session-id": Trait.REPLY_TO_SESSION_ID,
    "content-type": Trait.CONTENT_TYPE,
}


def read_rule(name: str, description: Mapping[str, Any]) -> Rule:
    """A rule as a client asks for it; raises NotHonoured, or ValueError for an empty filter."""
    if description.get("sql-rule-action") is not None:
        raise NotHonoured("rule actions are not honoured")
    sql, correlation = description.get("sql-filter"), description.get("correlation-filter")
    if sql is not None:
        return Rule(name, sql_filter(str(sql["expression"])))
    return Rule(name, read_correlation(correlation or {}))


def read_correlation(document: Mapping[str, Any]) -> CorrelationFilter:
    """What a message must be equal in."""
    system = {trait: document.get(key) for key, trait in TRAIT_KEYS.items()}
    return CorrelationFilter(
        {trait: str(value) for trait, value in system.items() if value is not None},
        document.get("properties") or {},
    )


def write_rule(rule: Rule) -> dict[str, Any]:
    """A rule as it is listed."""
    nothing = Described(ulong(NO_ACTION_CODE), [])
    return {
        "rule-description": Described(
            ulong(RULE_CODE), [write_filter(rule.filter), nothing, rule.name]
        )
    }


def write_filter(given: Filter) -> Described:
    """A filter as it is listed."""
    match given:
        case TrueFilter():
            return Described(ulong(TRUE_CODE), [])
        case FalseFilter():
            return Described(ulong(FALSE_CODE), [])
        case CorrelationFilter(system=system, application=application):
            values: list[Any] = [system.get(trait) for trait in TRAIT_KEYS.values()]
            values.append(dict(application))
            return Described(ulong(CORRELATION_CODE), values)
    raise TypeError(f"no filter: {given!r}")


def describe(given: Filter) -> dict[str, Any]:
    """A filter as a client asks for it: what `read_rule` reads."""
    match given:
        case TrueFilter():
            return {"sql-filter": {"expression": ALWAYS}}
        case FalseFilter():
            return {"sql-filter": {"expression": NEVER}}
        case CorrelationFilter(system=system, application=application):
            named = {key: system[trait] for key, trait in TRAIT_KEYS.items() if trait in system}
            return {"correlation-filter": {**named, "properties": dict(application)}}
    raise TypeError(f"no filter: {given!r}")


def encode_rules(rules: Sequence[Rule]) -> bytes:
    """Rules as bytes; values in a filter keep their AMQP types."""
    return Message(body=[[rule.name, describe(rule.filter)] for rule in rules]).encode()


def decode_rules(encoded: bytes) -> list[Rule]:
    """The rules that were encoded."""
    message = Message()
    message.decode(encoded)
    rules: Any = message.body
    return [read_rule(name, description) for name, description in rules]
