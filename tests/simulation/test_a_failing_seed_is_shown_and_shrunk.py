"""Who breaks the engine gets a seed, the command that replays it, and few faults to read."""

import pytest

from proof.simulation import campaign
from proof.simulation.__main__ import main
from proof.simulation.run import shrink, simulate
from proof.simulation.work.scenarios import accounts
from proof.simulation.world.faults import ROUGH
from tests.mutants.catalogue import FOR_SIMULATION
from tests.mutants.loading import applied

pytestmark = pytest.mark.slow

MUTANT = "take an unknown commit for a success"


@pytest.mark.proof
def test_a_failing_seed_is_named_and_shrunk_to_the_faults_that_matter(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (mutant,) = (one for one in FOR_SIMULATION if one.name == MUTANT)
    with applied(mutant):
        found = next(one for seed in range(1000) if (one := simulate(seed, ROUGH)).violations)
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

        chosen = f"--first {found.seed} --seeds 1 --profile rough --scenario accounts"
        assert main(chosen.split()) == 1
    printed = capsys.readouterr().out
    assert f"replay: python -m proof.simulation {chosen} --shrink" in printed
    assert "1 failed" in printed


def test_the_command_line_is_content_with_a_healthy_engine_on_two_cores(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "SEEDS_AT_ONCE", 2)
    assert main(["--seeds", "5", "--jobs", "2"]) == 0

    assert "5 seeds with rough faults, 0 failed" in capsys.readouterr().out
