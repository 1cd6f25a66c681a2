"""Rules of a subscription: which of its topic's messages it takes.

Honoured are the true, the false and the correlation filter. SQL filters and actions are not, but
for the two expressions by which the service itself writes true and false.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from local.servicebus.traits import Trait, Traits

DEFAULT_RULE = "$Default"
ALWAYS, NEVER = "1=1", "1=0"


class NotHonoured(ValueError):
    """A kind of filter, or an action, that this service does not carry out."""


class Filter(Protocol):
    """A condition on a message."""

    def matches(self, traits: Traits) -> bool:
        """Whether a message with these traits is wanted."""
        ...


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Takes everything."""

    def matches(self, traits: Traits) -> bool:  # noqa: ARG002
        """Always."""
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Takes nothing."""

    def matches(self, traits: Traits) -> bool:  # noqa: ARG002
        """Never."""
        return False


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Takes what equals it in every property it names; text is compared with its case."""

    system: Mapping[Trait, str]
    application: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.system and not self.application:
            raise ValueError("a correlation filter must name a property")

    def matches(self, traits: Traits) -> bool:
        """Whether all of them are equal."""
        missing = object()
        return all(traits.system.get(trait) == value for trait, value in self.system.items()) and (
            all(traits.application.get(key, missing) == v for key, v in self.application.items())
        )


def sql_filter(expression: str) -> Filter:
    """The filter an SQL expression stands for; raises NotHonoured for all but 1=1 and 1=0."""
    match expression.replace(" ", ""):
        case "1=1":
            return TrueFilter()
        case "1=0":
            return FalseFilter()
    raise NotHonoured(f"the SQL filter {expression!r} is not honoured, only {ALWAYS} and {NEVER}")


@dataclass(frozen=True, slots=True)
class Rule:
    """A filter under a name."""

    name: str
    filter: Filter


EVERYTHING = (Rule(DEFAULT_RULE, TrueFilter()),)
