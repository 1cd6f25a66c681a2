"""All mutants. Each check takes those that it must notice.

They stand in the text files beside this one, as they would in a diff: the file of the product,
where it is another one than before; the promise that breaks, and the name; lines to take away
(`-`), to put in (`+`) and to find the place by, and who must notice (`by`). The old lines, however
deep they stand in the code, must be there exactly once.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.mutant import Mutant, Simulated
from tests.promises import TESTS_BY_PROMISE

FILES = (
    *("journal", "consuming", "delivering", "growing", "ending", "publishing", "sagas", "rights"),
    *("watching", "backtest", "deciding", "steps"),
)
SAMPLED_OF_EACH = 2


def read_mutants(text: str) -> Iterator[Mutant]:
    """Read the mutants of a file, in order; its first paragraph says what they have in common."""
    path = ""
    for paragraph in text.split("\n\n")[1:]:
        lines = paragraph.splitlines()
        if lines[0].endswith(".py"):
            path = lines.pop(0)
        promise, _, name = lines.pop(0).partition(" ")
        judges: dict[str, Any] = {}
        for line in [line for line in lines if line.startswith("by ")]:
            match line.split(" "):
                case ["by", "simulation", *options]:
                    chosen: dict[str, Any] = dict(option.split("=") for option in options)
                    if "seeds_max" in chosen:
                        chosen["seeds_max"] = int(chosen["seeds_max"])
                    judges["simulated"] = Simulated(**chosen)
                case ["by", "crash", "point", *work]:
                    judges["crash_point"] = " ".join(work)
                case ["by", tests]:
                    judges["tests"] = tests
            lines.remove(line)
        old, new = ("\n".join(one[2:] for one in lines if one[0] != sign) for sign in "+-")
        yield Mutant(promise, name, path, old, new, **judges)


MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for name in FILES
    for mutant in read_mutants(Path(__file__).with_name(f"{name}.txt").read_text("utf-8"))
)
FOR_TESTS = tuple(mutant for mutant in MUTANTS if mutant.tests)
FOR_SIMULATION = tuple(mutant for mutant in MUTANTS if mutant.simulated)
FOR_CRASH_POINTS = tuple(mutant for mutant in MUTANTS if mutant.crash_point)


def choose_sample() -> Iterator[Mutant]:
    """Two mutants of each promise, those first that the promise's own quick tests find."""
    for promise, files in TESTS_BY_PROMISE.items():
        of_promise = [mutant for mutant in FOR_TESTS if mutant.promise == promise]
        # Sorting keeps the order of the catalogue, so the same ones are chosen in every run.
        yield from sorted(of_promise, key=lambda m: m.tests not in files)[:SAMPLED_OF_EACH]


# What is tried where there is no time for all.
SAMPLE = tuple(choose_sample())


def as_parameters(mutants: Sequence[Mutant], sample: Collection[Mutant]) -> list[Any]:
    """All of them for the proof, and those of the sample for every run."""
    return [
        pytest.param(
            mutant,
            id=f"{mutant.promise}: {mutant.name}",
            marks=[] if mutant in sample else pytest.mark.proof,
        )
        for mutant in mutants
    ]
