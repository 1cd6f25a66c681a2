"""Each promise is broken on purpose; the tests that guard it must fail."""

import subprocess
import sys

import pytest

from tests.mutants.catalogue import FOR_TESTS
from tests.mutants.mutant import Mutant
from tests.mutants.syntax import ROOT

TESTS_FAILED = 1  # pytest's exit status; any other one means that the mutant did not even run


@pytest.mark.parametrize("mutant", FOR_TESTS, ids=lambda mutant: f"{mutant.promise}: {mutant.name}")
def test_the_mutant_is_killed(mutant: Mutant) -> None:
    assert mutant.tests is not None
    run = run_module("tests.mutants.run_tests", mutant.name, mutant.tests)

    assert run.returncode == TESTS_FAILED, f"survived\n{run.stdout}{run.stderr}"


@pytest.mark.timeout(300)
def test_the_killers_pass_on_healthy_code() -> None:
    run = run_module("pytest", *sorted({str(mutant.tests) for mutant in FOR_TESTS}), seconds=240)

    assert run.returncode == 0, run.stdout


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in FOR_TESTS} == {f"P{number}" for number in range(1, 10)}


def run_module(
    module: str, *arguments: str, seconds: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run pytest, or what runs it, in a process of its own until the first failure."""
    return subprocess.run(
        [sys.executable, "-B", "-m", module, *arguments, "-x", "-q", "-p", "no:cacheprovider"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
