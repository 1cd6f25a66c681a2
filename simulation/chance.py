"""Everything that is left to chance, from one seed, so that the same seed tells the same story."""

import hashlib
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Mishap:
    """Something that went wrong: which one in the order of happening, what, where and when."""

    number: int
    kind: str
    where: str
    at: float

    def __str__(self) -> str:
        """One line of the diary."""
        return f"{self.number}: {self.at:.3f} s {self.where}: {self.kind}"


@dataclass
class Chance:
    """A seeded source of delays and decisions, and the diary of what was decided.

    `allowed` are the misfortunes that may happen, by number; None for all.
    """

    seed: int
    allowed: Collection[int] | None = None
    happened: int = 0
    diary: list[Mishap] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = self.stream("story")
        self.trace = hashlib.sha256()

    def stream(self, name: str) -> random.Random:
        """A source of its own, so that what is drawn from it changes nothing elsewhere."""
        return random.Random(f"{self.seed} {name}")  # noqa: S311 - must repeat, not surprise

    def delay(self, longest: float) -> float:
        """A time between nothing and the longest."""
        return self.random.random() * longest

    def pick[T](self, choices: Sequence[T]) -> T:
        """One of several, all as likely."""
        return choices[int(self.random.random() * len(choices))]

    def strikes(self, probability: float) -> int | None:
        """The number of a misfortune that happens now, by which it can be forbidden; else None."""
        if self.random.random() >= probability:
            return None
        number = self.happened
        self.happened += 1
        return number if self.allowed is None or number in self.allowed else None

    def note(self, event: str) -> None:
        """Add an event to the trace, by which two runs are compared."""
        self.trace.update(event.encode() + b"\n")
