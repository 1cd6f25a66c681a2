"""A seed is all there is to a story: in this process, in another, and whatever `hash()` gives."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from simulation.run import simulate
from simulation.weather import ROUGH

ROOT = Path(__file__).parents[2]
SEEDS = range(6)
TRACES = (
    "from simulation.run import simulate\n"
    "from simulation.weather import ROUGH\n"
    f"print(*(simulate(seed, ROUGH).trace for seed in range({SEEDS.stop})))\n"
)


def test_a_seed_repeats_its_story_to_the_last_fault() -> None:
    first, second = (simulate(4, ROUGH) for _ in range(2))

    assert first == second
    assert len(first.diary) > 5


def test_no_two_seeds_tell_the_same_story() -> None:
    assert len({simulate(seed, ROUGH).trace for seed in SEEDS}) == len(SEEDS)


@pytest.mark.parametrize("hash_seed", ["1", "77"])
def test_another_process_with_another_hash_seed_tells_the_same_stories(hash_seed: str) -> None:
    here = [simulate(seed, ROUGH).trace for seed in SEEDS]

    there = subprocess.run(
        [sys.executable, "-c", TRACES],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )

    assert there.stdout.split() == here
