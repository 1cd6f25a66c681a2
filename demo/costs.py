"""What a run cost, from the local cloud's counters: operations, request units, abandons."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# By component, operation, status and measure (count, bytes, request_units).
type Counters = Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]


@dataclass(frozen=True, slots=True)
class Costs:
    """Counts of one run. `operations` are the Cosmos requests by kind, refused ones included.

    `commits` are transactional batches that succeeded: the strong writes that make effects.
    `abandons` are deliveries that were given back to their queue.
    """

    messages: int
    operations: Mapping[str, int]
    request_units: float
    commits: int
    abandons: int

    def per_message(self, amount: float) -> float:
        """Return an amount divided by the messages of the run; 0 for a run without any."""
        return amount / self.messages if self.messages else 0.0


def costs(before: Counters, after: Counters, messages: int) -> Costs:
    """Return what happened between two snapshots of the counters, for this many messages."""
    spent = Counter(tallies(after))
    spent.subtract(tallies(before))
    operations: Counter[str] = Counter()
    commits = abandons = 0
    for (component, operation, status, measure), amount in spent.items():
        match component, measure:
            case str(), "count" if component.startswith("cosmos."):
                operations[operation] += round(amount)
                if (operation, status) == ("batch", "200"):
                    commits += round(amount)
            case _, "count" if operation == "abandon":
                abandons += round(amount)
    units = sum(
        amount
        for (component, _, _, measure), amount in spent.items()
        if component.startswith("cosmos") and measure == "request_units"
    )
    return Costs(messages, dict(+operations), units, commits, abandons)


def tallies(counters: Counters) -> dict[tuple[str, str, str, str], Any]:
    """Flatten counters to {(component, operation, status, measure): amount}."""
    return {
        (component, operation, status, measure): amount
        for component, operations in counters.items()
        for operation, statuses in operations.items()
        for status, measures in statuses.items()
        for measure, amount in measures.items()
    }
