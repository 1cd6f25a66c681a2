"""The verdict: for each promise what was checked, how often it was broken, and where first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from chaos.judge import counts, promises
from chaos.judge.history import History
from chaos.judge.promises import Case

EXAMPLES = 5

type Look = Callable[[Case], Iterator[str]]
type Count = Callable[[Case], int]


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise, how its breaches are found, and how many things are looked at for it."""

    name: str
    says: str
    look: Look
    of: str
    count: Count


@dataclass(frozen=True, slots=True)
class Finding:
    """How a promise was kept: `violations` of `checked` things, and a few of them by name."""

    promise: Promise
    checked: int
    violations: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        text = f"{self.promise.name} {self.promise.says}: checked {self.checked} {self.promise.of}"
        examples = "".join(f"; {example}" for example in self.examples)
        return f"{text}, violations {self.violations}{examples}"


PROMISES = (
    Promise("P1", "no loss", promises.lost, "safe messages", counts.safe),
    Promise("P2", "once", promises.repeated, "messages with effects", counts.applied),
    Promise("P3", "order", promises.out_of_order, "effects in order", counts.copies),
    Promise("P4", "same bytes", promises.different, "copies of outputs", counts.seen),
    Promise("P5", "no ghosts", promises.ghosts, "outputs and states", counts.states),
    Promise("P6", "liveness", promises.unfinished, "queues and lists", counts.lists),
    Promise("P7", "quiet", promises.unquiet, "early copies and runs", counts.early),
    Promise("P8", "bounded", promises.unbounded, "documents", counts.documents),
    Promise("P9", "named ends", promises.unnamed, "poisoned messages", counts.named),
)


def judge(history: History) -> tuple[Finding, ...]:
    """Hold a history against every promise."""
    case = Case(history)
    return tuple(found(promise, case) for promise in PROMISES)


def found(promise: Promise, case: Case) -> Finding:
    """Look for breaches of one promise."""
    names = list(promise.look(case))
    examples = tuple(dict.fromkeys(names))[:EXAMPLES]
    return Finding(promise, promise.count(case), len(names), examples)
