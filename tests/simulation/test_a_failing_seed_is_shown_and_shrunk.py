"""Who breaks the engine gets a seed, the command that replays it, and few faults to read."""

import pytest

from proof.simulation.__main__ import main
from proof.simulation.run import shrink, simulate
from proof.simulation.work.scenarios import accounts
from proof.simulation.world.faults import ROUGH
from tests.mutants.catalogue import FOR_SIMULATION
from tests.mutants.loading import applied

pytestmark = pytest.mark.slow


BY_NAME = {mutant.name: mutant for mutant in FOR_SIMULATION}


def first_failing() -> int:
    """The first seed that finds the mutant, which must be applied."""
    return next(seed for seed in range(1000) if simulate(seed, ROUGH).violations)


@pytest.mark.proof
def test_a_failing_seed_is_shrunk_to_the_faults_that_matter() -> None:
    with applied(BY_NAME["take an unknown commit for a success"]):
        found = simulate(first_failing(), ROUGH)
        small = shrink(found, accounts)

        assert small.violations
        assert 1 <= len(small.faults) < len(found.faults)
        assert any(
            fault.kind in ("lost (408)", "applied late", "unanswered (408)")
            and "append" in fault.where
            for fault in small.faults
        )
        again = simulate(found.seed, ROUGH, allowed=[fault.number for fault in small.faults])
        assert again == small


@pytest.mark.proof
def test_the_command_line_names_the_seed_and_how_to_replay_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with applied(BY_NAME["let a message run again on the newest state"]):
        seed = first_failing()
        seeds = ["--seeds", "1", "--first", str(seed), "--scenario", "accounts"]
        status = main([*seeds, "--profile", "rough", "--shrink"])

    output = capsys.readouterr().out
    assert status == 1
    command = (
        f"python -m proof.simulation --first {seed} --seeds 1 --profile rough --scenario accounts"
    )
    assert f"replay: {command} --shrink" in output
    assert "1 failed" in output
    assert "broke P" in output


def test_the_command_line_is_content_with_a_healthy_engine_on_two_cores(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "30", "--profile", "mild", "--jobs", "2"]) == 0

    assert "30 seeds with mild faults, 0 failed" in capsys.readouterr().out
