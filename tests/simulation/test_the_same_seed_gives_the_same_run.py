"""A run follows from its seed: in this process, in another, and whatever `hash()` gives."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from proof.simulation.run import simulate
from proof.simulation.work.scenarios import SCENARIOS
from proof.simulation.world.faults import ROUGH

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[2]
SEEDS = range(4)
TRACES = (
    "import sys\n"
    "from proof.simulation.work.scenarios import SCENARIOS\n"
    "from proof.simulation.run import simulate\n"
    "from proof.simulation.world.faults import ROUGH\n"
    "scenario = SCENARIOS[sys.argv[1]]\n"
    f"print(*(simulate(seed, ROUGH, scenario=scenario).trace for seed in range({SEEDS.stop})))\n"
)


@cache
def traces(scenario: str) -> list[str]:
    """What the seeds give in this process."""
    return [simulate(seed, ROUGH, scenario=SCENARIOS[scenario]).trace for seed in SEEDS]


@pytest.mark.parametrize("scenario", ["accounts", "orders", "asks"])
def test_a_seed_repeats_its_run_to_the_last_fault(scenario: str) -> None:
    first, second = (simulate(4, ROUGH, scenario=SCENARIOS[scenario]) for _ in range(2))

    assert first == second
    assert len(first.faults) > 5


@pytest.mark.parametrize("scenario", ["accounts", "orders"])
def test_no_two_seeds_give_the_same_run(scenario: str) -> None:
    assert len({*traces(scenario)}) == len(SEEDS)


@pytest.mark.parametrize(("scenario", "hash_seed"), [("accounts", "1"), ("orders", "77")])
def test_another_process_with_another_hash_seed_gives_the_same_runs(
    scenario: str, hash_seed: str
) -> None:
    there = subprocess.run(
        [sys.executable, "-c", TRACES, scenario],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )

    assert there.stdout.split() == traces(scenario)
