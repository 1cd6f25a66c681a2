"""Who breaks the engine gets a seed, the command that replays it, and few misfortunes to read."""

import pytest

from simulation.__main__ import main
from simulation.campaign import smallest
from simulation.run import simulate
from simulation.weather import ROUGH
from tests.simulation.catalogue import MUTATIONS
from tests.simulation.mutations import Mutation, applied

UNKNOWN_FOR_SUCCESS = "take an unknown commit for a success"


def mutation(name: str) -> Mutation:
    """A mutation of the catalogue."""
    return next(mutation for mutation in MUTATIONS if mutation.name == name)


def first_failing(broken: Mutation) -> int:
    """The first seed that finds a mutation."""
    seeds = range(broken.seeds_max)
    return next(seed for seed in seeds if simulate(seed, ROUGH).violations)


def test_a_failing_seed_is_shrunk_to_the_misfortunes_that_matter() -> None:
    with applied(mutation(UNKNOWN_FOR_SUCCESS)):
        found = simulate(first_failing(mutation(UNKNOWN_FOR_SUCCESS)), ROUGH)
        small = smallest(found)

        assert small.violations
        assert 1 <= len(small.diary) < len(found.diary)
        assert any(
            mishap.kind in ("lost (408)", "applied late", "unanswered (408)")
            and "append" in mishap.where
            for mishap in small.diary
        )
        again = simulate(found.seed, ROUGH, allowed=[mishap.number for mishap in small.diary])
        assert again == small


def test_the_command_line_names_the_seed_and_how_to_replay_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = mutation(UNKNOWN_FOR_SUCCESS)
    with applied(broken):
        seed = first_failing(broken)
        seeds = ["--seeds", "1", "--first", str(seed), "--play", "accounts"]
        status = main([*seeds, "--climate", "rough", "--shrink"])

    told = capsys.readouterr().out
    assert status == 1
    command = f"python -m simulation --first {seed} --seeds 1 --climate rough --play accounts"
    assert f"replay: {command} --shrink" in told
    assert "1 failed" in told
    assert "broke P" in told


def test_the_command_line_is_content_with_a_healthy_engine_on_two_cores(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--seeds", "30", "--climate", "mild", "--jobs", "2"]) == 0

    assert "30 seeds in mild weather, 0 failed" in capsys.readouterr().out
