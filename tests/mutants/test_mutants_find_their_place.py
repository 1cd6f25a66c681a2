"""A mutant finds the lines that it changes, or says that it does not fit."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Mutant, MutantDoesNotFit

CODE = "if a:\n    b(\n        1,\n    )\nelse:\n    c()\n    c()\n"


def test_every_mutant_fits_and_uses_known_names_only(tmp_path: Path) -> None:
    """A name that is unknown where it is used would be noticed by whatever runs the line."""
    for number, mutant in enumerate(MUTANTS):
        healthy = (ROOT / mutant.path).read_text("utf-8")
        (tmp_path / f"mutant_{number}.py").write_text(mutant.change(healthy), "utf-8")

    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F82"]
    checked = subprocess.run([*command, tmp_path], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout


def test_every_mutant_has_a_judge_and_a_name_of_its_own() -> None:
    assert [
        one.name for one in MUTANTS if not (one.tests or one.simulated or one.crash_point)
    ] == []
    assert len({one.name for one in MUTANTS}) == len(MUTANTS)


def test_lines_are_found_however_deep_they_stand_and_the_new_ones_stand_as_deep() -> None:
    mutant = Mutant("P1", "example", "", "b(\n    1,\n)", "if x:\n    b()")

    assert mutant.change(CODE) == "if a:\n    if x:\n        b()\nelse:\n    c()\n    c()\n"


@pytest.mark.parametrize(("old", "count"), [("c()", 2), ("d()", 0), ("else:\nc()", 0)])
def test_a_mutant_whose_lines_are_not_there_exactly_once_is_refused(old: str, count: int) -> None:
    mutant = Mutant("P1", "example", "engine.py", old, "pass")

    with pytest.raises(MutantDoesNotFit, match=f"fits engine.py {count} times"):
        mutant.change(CODE)
