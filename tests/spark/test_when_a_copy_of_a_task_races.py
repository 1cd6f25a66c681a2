"""Spark speculates: two attempts of a task send at once, and one goes on after the commit."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.testing.patience import run_patiently, until
from proof.testbed.cloud import app_settings
from tests.e2e.stack import Stack, running_stack
from tests.spark.environment import QUICK
from tests.spark.racing_feed import COPY_SENDS, COUNTS_FILE, FACTS_FILE, ZOMBIE_ENDED
from tests.spark.statuses import TYPE, effects, expected, table

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.proof]

STATUSES = table(aircraft=12, lines=range(8))
JOB_SECONDS_MAX = 400.0
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "2"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "cloud", **DELAY) as stack:
        yield stack


def test_a_copy_that_sends_at_the_same_time_and_after_the_commit_adds_no_effect(
    stack: Stack, tmp_path: Path
) -> None:
    facts = [
        (s.aircraft, f"[{s.line}]", [f"{s.line:03}"], TYPE, s.said, None, None) for s in STATUSES
    ]
    (tmp_path / FACTS_FILE).write_text(json.dumps(facts))
    settings = QUICK | (app_settings(stack.cloud) | DELAY) | {"PYTHONPATH": str(ROOT)}

    command = [sys.executable, "-m", "tests.spark.racing_feed", str(tmp_path)]
    job = run_patiently(command, seconds=JOB_SECONDS_MAX, env=os.environ | settings)

    assert job.returncode == 0, job.stderr
    assert (tmp_path / COPY_SENDS).exists(), "Spark copied the slow task"
    assert int((tmp_path / ZOMBIE_ENDED).read_text()) > 0, "the slow attempt sent after the commit"
    assert int((tmp_path / COUNTS_FILE).read_text()) == len(STATUSES)
    until(lambda: stack.left_in_queues() == 0, seconds=90, what="draining")
    assert effects(stack.entries()) == expected(STATUSES)
