"""What is counted of a run beside its journal and its queues."""

from collections import Counter
from dataclasses import dataclass, field

type Identity = tuple[str, str, str]


@dataclass
class Tally:
    """How often what happened. `rejected` is the report by session, id and digest.

    `failures` are the activities that have to be tried again.
    """

    abandoned: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    rejected: dict[Identity, str] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)
