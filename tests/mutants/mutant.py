"""A mutant: one small change to the product that its judges must notice."""

from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent

ROOT = Path(__file__).parents[2]


class MutantDoesNotFit(Exception):
    """The lines that a mutant changes are not there, or are there more than once."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """How the simulation finds a mutant: with which faults and scenario, in how many seeds."""

    seeds_max: int = 60
    profile: str = "rough"
    scenario: str = "accounts"

    @property
    def is_rare(self) -> bool:
        """Whether only a patient search finds it."""
        return self.seeds_max > 60


@dataclass(frozen=True, slots=True)
class Mutant:
    """New lines in place of old ones in a file, the promise that breaks, and the judges.

    The judges are `tests`, a file or one test of a slow file, the simulation, and the piece of
    work `crash_point`.
    """

    promise: str
    name: str
    path: str
    old: str
    new: str
    tests: str | None = None
    simulated: Simulated | None = None
    crash_point: str | None = None

    def change(self, source: str) -> str:
        """Return the source with the new lines, as deep as the old. Raises MutantDoesNotFit."""
        lines, size = source.splitlines(), len(self.old.splitlines())
        places = [
            place
            for place in range(len(lines) - size + 1)
            if dedent("\n".join(lines[place : place + size])) == self.old
        ]
        if len(places) != 1:
            raise MutantDoesNotFit(f"{self.name!r} fits {self.path} {len(places)} times")
        (place,) = places
        margin = lines[place].removesuffix(self.old.splitlines()[0])
        lines[place : place + size] = [indent(self.new, margin)]
        return "\n".join([*lines, ""])
