"""A seed is all there is to a run_scenario: in this process, in another, and whatever `hash()` gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.faults import ROUGH
from simulation.run import simulate
from simulation.scenarios import SCENARIOS

ROOT = Path(__file__).parents[2]
SEEDS = range(6)
TRACES = (
    "import sys\n"
    "from simulation.scenarios import SCENARIOS\n"
    "from simulation.run import simulate\n"
    "from simulation.faults import ROUGH\n"
    "play = SCENARIOS[sys.argv[1]]\n"
    f"print(*(simulate(seed, ROUGH, scenario=play).trace for seed in range({SEEDS.stop})))\n"
)


@pytest.mark.parametrize("play", ["accounts", "orders"])
def test_a_seed_repeats_its_story_to_the_last_fault(play: str) -> None:
    first, second = (simulate(4, ROUGH, scenario=SCENARIOS[play]) for _ in range(2))

    assert first == second
    assert len(first.faults) > 5


@pytest.mark.parametrize("play", ["accounts", "orders"])
def test_no_two_seeds_tell_the_same_story(play: str) -> None:
    told = {simulate(seed, ROUGH, scenario=SCENARIOS[play]).trace for seed in SEEDS}

    assert len(told) == len(SEEDS)


@pytest.mark.parametrize(("play", "hash_seed"), [("accounts", "1"), ("orders", "77")])
def test_another_process_with_another_hash_seed_tells_the_same_stories(
    play: str, hash_seed: str
) -> None:
    here = [simulate(seed, ROUGH, scenario=SCENARIOS[play]).trace for seed in SEEDS]

    there = subprocess.run(
        [sys.executable, "-c", TRACES, play],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )

    assert there.stdout.split() == here
