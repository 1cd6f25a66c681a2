"""Each promise is broken on purpose; the tests that guard it must fail."""

from pathlib import Path

import pytest

from tests.mutants.catalogue import FOR_TESTS
from tests.mutants.mutant import Mutant
from tests.mutants.run_tests import run_tests

# Every killer is run on healthy code by the suite; these show that a run here is no other one.
FIRST_OF_PROMISES = list({mutant.promise: mutant for mutant in reversed(FOR_TESTS)}.values())


@pytest.mark.parametrize("mutant", FOR_TESTS, ids=lambda mutant: f"{mutant.promise}: {mutant.name}")
def test_the_mutant_is_killed(mutant: Mutant, tmp_path: Path) -> None:
    output = tmp_path / "output"

    status = run_tests(str(mutant.tests), mutant, output)

    # Any other status means that the mutant did not even run.
    assert status == pytest.ExitCode.TESTS_FAILED, f"survived\n{output.read_text()}"


@pytest.mark.parametrize("mutant", FIRST_OF_PROMISES, ids=lambda mutant: mutant.promise)
def test_its_tests_pass_on_healthy_code(mutant: Mutant, tmp_path: Path) -> None:
    output = tmp_path / "output"

    status = run_tests(str(mutant.tests), None, output)

    assert status == pytest.ExitCode.OK, output.read_text()


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in FOR_TESTS} == {f"P{number}" for number in range(1, 10)}
