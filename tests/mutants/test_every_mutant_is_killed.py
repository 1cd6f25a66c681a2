"""Each promise is broken on purpose; the test that guards it must fail."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import catalogue, engine, publishing
from tests.mutants.mutant import Mutant

MUTANTS = (*catalogue.MUTANTS, *engine.MUTANTS, *publishing.MUTANTS)
ROOT = Path(__file__).parents[2]
COPIED = ("shared", "functions", "tests", "local", "pyproject.toml", "local.config.json")
TESTS_FAILED = 1  # pytest's exit status; any other one means that the mutant did not even run


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the code that may be broken."""
    tree = tmp_path_factory.mktemp("mutants")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, tree / name)
    return tree


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.promise}: {mutant.name}")
def test_the_mutant_is_killed(copy: Path, mutant: Mutant) -> None:
    target = copy / mutant.file
    healthy = target.read_text()
    assert healthy.count(mutant.before) == 1, "the mutant does not fit the code any more"

    target.write_text(healthy.replace(mutant.before, mutant.after))
    try:
        run = run_tests(copy, mutant.killer)
    finally:
        target.write_text(healthy)

    assert run.returncode == TESTS_FAILED, f"survived\n{run.stdout}{run.stderr}"


@pytest.mark.timeout(300)
def test_the_killers_pass_on_healthy_code(copy: Path) -> None:
    run = run_tests(copy, *sorted({mutant.killer for mutant in MUTANTS}), seconds=240)

    assert run.returncode == 0, run.stdout


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in MUTANTS} == {f"P{number}" for number in range(1, 10)}


def run_tests(tree: Path, *tests: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run test files of a copy until the first failure."""
    return subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests],
        cwd=tree,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
