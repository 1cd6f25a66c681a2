"""The `Rules` of a subscription in `Config.json`."""

from collections.abc import Mapping
from typing import Any

from local.servicebus.properties import InvalidConfig, parse_name, refuse_unknown
from local.servicebus.rules import CorrelationFilter, Filter, NotHonoured, Rule, sql_filter
from local.servicebus.traits import Trait

CORRELATION_KEYS = {*(trait.value for trait in Trait), "Properties"}


def parse_rule(document: Mapping[str, Any], owner: str) -> Rule:
    """Read one rule; SQL filters and actions raise InvalidConfig."""
    name = parse_name(document, f"{owner}: a rule")
    where = f"{owner}: rule {name!r}"
    refuse_unknown(document, {"Name", "Properties"}, where)
    properties = document.get("Properties", {})
    refuse_unknown(properties, {"FilterType", "SqlFilter", "CorrelationFilter"}, where)
    try:
        return Rule(name, parse_filter(properties, where))
    except NotHonoured as error:
        raise InvalidConfig(f"{where}: {error}") from error


def parse_filter(properties: Mapping[str, Any], where: str) -> Filter:
    """Read the filter a rule declares by its type."""
    match properties.get("FilterType"):
        case "Sql":
            return sql_filter(str(properties.get("SqlFilter", {}).get("SqlExpression")))
        case "Correlation":
            return parse_correlation(properties.get("CorrelationFilter", {}), where)
        case other:
            raise InvalidConfig(f"{where}: FilterType {other!r} is neither Correlation nor Sql")


def parse_correlation(document: Mapping[str, Any], where: str) -> CorrelationFilter:
    """Read what a message must be equal in."""
    refuse_unknown(document, CORRELATION_KEYS, where)
    system = {trait: document[trait] for trait in Trait if document.get(trait) not in (None, "")}
    for trait, value in system.items():
        if not isinstance(value, str):
            raise InvalidConfig(f"{where}: {trait} must be text, not {value!r}")
    try:
        return CorrelationFilter(system, document.get("Properties") or {})
    except ValueError as error:
        raise InvalidConfig(f"{where}: {error}") from error
