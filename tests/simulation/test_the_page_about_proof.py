"""docs/proof.md shows what runs, and every way of getting it wrong that is looked for."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from simulation.__main__ import parser
from tests.simulation.detection import EVERY_MUTATION
from tests.simulation.test_a_team_simulates_its_own_handlers import MESSAGES, handlers

PAGE = (Path(__file__).parents[2] / "docs/proof.md").read_text()


def test_the_example_runs_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    theirs = ModuleType("handlers_of_yours")
    theirs.__dict__.update(handlers=handlers, messages=MESSAGES)
    monkeypatch.setitem(sys.modules, "handlers_of_yours", theirs)
    names: dict[str, object] = {}

    exec(example.replace("range(200)", "range(3)"), names)
    test = names["test_stock"]

    assert callable(test)
    test()


def test_the_commands_are_understood() -> None:
    shown = re.findall(r"python -m simulation ([^#\n`]+)", PAGE)

    assert shown
    for arguments in shown:
        parser().parse_args(arguments.split())


def test_every_mutation_is_listed_with_the_seeds_it_took() -> None:
    listed = re.findall(r"^\| (P\d) \| (.+?) \| (\w+) \| (\d+) \|", PAGE, re.MULTILINE)

    assert [(promise, name, climate) for promise, name, climate, _ in listed] == [
        (mutation.promise, mutation.name, mutation.climate) for mutation in EVERY_MUTATION
    ]
