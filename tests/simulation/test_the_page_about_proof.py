"""docs/proof.md shows what runs, and every way of getting it wrong that is looked for."""

import re
import sys
from types import ModuleType

import pytest

import proof.simulation.__main__
import tests.crash_points.__main__
from tests.docs.pages import page
from tests.mutants.catalogue import FOR_SIMULATION, FOR_TESTS, MUTANTS
from tests.simulation.test_a_team_simulates_its_own_handlers import MESSAGES, handlers

PAGE = page("docs/proof.md")


def test_the_example_runs_as_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = PAGE.programs()
    theirs = ModuleType("handlers_of_yours")
    theirs.__dict__.update(handlers=handlers, messages=MESSAGES)
    monkeypatch.setitem(sys.modules, "handlers_of_yours", theirs)
    names: dict[str, object] = {}

    exec(example.replace("range(200)", "range(3)"), names)
    test = names["test_stock"]

    assert callable(test)
    test()


@pytest.mark.parametrize("command", [proof.simulation.__main__, tests.crash_points.__main__])
def test_the_commands_are_understood(command: ModuleType) -> None:
    name = command.__name__.removesuffix(".__main__")
    shown = re.findall(rf"python -m {name}\b([^#\n`]*)", PAGE.text)

    assert shown
    for arguments in shown:
        command.parser().parse_args(arguments.split())


def test_the_mutants_are_counted() -> None:
    assert f"{len(MUTANTS)} small changes" in PAGE.text
    assert f"{len(FOR_TESTS)} of them by the tests" in PAGE.text


def test_every_mutant_is_listed_with_the_seeds_it_took() -> None:
    listed = re.findall(r"^\| (P\d) \| (.+?) \| (\w+) \| (\d+) \|", PAGE.text, re.MULTILINE)

    assert [(promise, name, profile) for promise, name, profile, _ in listed] == [
        (mutant.promise, mutant.name, mutant.simulated.profile)
        for mutant in FOR_SIMULATION
        if mutant.simulated
    ]
