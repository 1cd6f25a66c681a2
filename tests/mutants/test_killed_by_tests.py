"""Each promise is broken on purpose; the tests that guard it must fail."""

from pathlib import Path

import pytest

from tests.mutants.catalogue import FOR_TESTS, SAMPLE, as_parameters
from tests.mutants.mutant import Mutant
from tests.mutants.run_tests import run_tests

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("mutant", as_parameters(FOR_TESTS, SAMPLE))
def test_the_mutant_is_killed(mutant: Mutant, tmp_path: Path) -> None:
    output = tmp_path / "output"

    status = run_tests(str(mutant.tests), mutant, output)

    # Any other status means that the mutant did not even run.
    assert status == pytest.ExitCode.TESTS_FAILED, f"survived\n{output.read_text()}"


def test_on_healthy_code_the_same_run_passes(tmp_path: Path) -> None:
    """The suite runs every judge on healthy code; this shows that a run here is no other one."""
    output = tmp_path / "output"

    status = run_tests(str(SAMPLE[0].tests), None, output)

    assert status == pytest.ExitCode.OK, output.read_text()


def test_every_promise_has_a_mutant() -> None:
    assert {mutant.promise for mutant in FOR_TESTS} == {f"P{number}" for number in range(1, 10)}
