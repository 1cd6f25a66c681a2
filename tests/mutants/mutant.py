"""What a mutant is: one small change to the engine that its judges must notice."""

from dataclasses import dataclass


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
    """One change to one definition, the promise that it breaks, and the judges that must notice.

    `definition` is the qualified name of a function, a class or an assigned name, which stands
    somewhere in `shared` or `functions`, such as `Committer.commit` or `decide`. `old` and `new`
    are expressions or statements. They are compared as syntax trees, so comments and the layout of
    the code do not matter, and a name such as `_A_` stands for any expression, see
    `tests.mutants.syntax`. `old` must occur once in the definition, unless `occurrence` says which
    one is meant, counted from 0.

    The judges are `tests`, a file or one test of a slow file, the simulation, and the piece of
    work `crash_point`.
    """

    name: str
    promise: str
    definition: str
    old: str
    new: str
    tests: str | None = None
    simulated: Simulated | None = None
    crash_point: str | None = None
    occurrence: int | None = None
