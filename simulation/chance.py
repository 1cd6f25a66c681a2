"""Everything that is left to chance, from one seed, so that the same seed tells the same story."""

import hashlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass
class Chance:
    """A seeded source of delays and decisions, and the diary of what was decided."""

    seed: int
    # Which misfortunes may happen, by their number in the order of happening; None for all.
    allowed: Collection[int] | None = None
    happened: int = 0
    diary: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311 - must repeat, not surprise
        self.trace = hashlib.sha256()

    def delay(self, longest: float) -> float:
        """A time between nothing and the longest."""
        return self.random.random() * longest

    def pick[T](self, choices: Sequence[T]) -> T:
        """One of several, all as likely."""
        return self.random.choice(choices)

    def strikes(self, probability: float, what: str) -> bool:
        """Whether a misfortune happens; it gets a number, by which it can be forbidden."""
        if self.random.random() >= probability:
            return False
        number = self.happened
        self.happened += 1
        if self.allowed is not None and number not in self.allowed:
            return False
        self.diary.append(f"{number}: {what}")
        return True

    def note(self, event: str) -> None:
        """Add an event to the trace, by which two runs are compared."""
        self.trace.update(event.encode() + b"\n")
