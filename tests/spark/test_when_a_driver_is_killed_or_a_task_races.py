"""A driver is killed, or two attempts of a task send at once: the effects are the source's."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cli.cloud import app_settings
from local.testing.patience import run_patiently, until, wait_for_end
from spark import feed, reconcile
from spark.feeding import dataframe as feeding
from spark.send.datasource import EventWriter
from tests.e2e.stack import Stack, running_stack
from tests.spark.conftest import QUICK
from tests.spark.doomed_feed import Point
from tests.spark.racing_feed import COPY_SENDS, COUNTS_FILE, FACTS_FILE, ZOMBIE_ENDED
from tests.spark.statuses import MAPPING, TYPE, delayed, effects, expected, table, write

pytestmark = [pytest.mark.spark, pytest.mark.e2e, pytest.mark.proof]

AIRCRAFT = 12
YESTERDAY = table(AIRCRAFT, range(6))
TODAY = delayed(table(AIRCRAFT, range(8)), places=(0, 30, 71))
FEED_SECONDS_MAX = 240.0
STATUSES = table(aircraft=12, lines=range(8))
JOB_SECONDS_MAX = 400.0
ROOT = Path(__file__).parents[2]
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "2"}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "cloud", **DELAY) as stack:
        yield stack


def test_killed_at_every_point_and_run_again_it_is_as_if_nothing_had_happened(
    spark: SparkSession,
    stack: Stack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, mapping, summary = (tmp_path / name for name in ("in.json", "mapping.json", "sum.json"))
    mapping.write_text(json.dumps(MAPPING))
    inputs = [f"--source={source}", f"--mapping={mapping}", f"--manifest={tmp_path / 'manifest'}"]
    inputs.append("--group=flights")
    words = [*inputs, f"--rejects={tmp_path / 'rejects'}", f"--summary={summary}", "--batch=20"]
    settings = app_settings(stack.cloud) | DELAY

    write(source, YESTERDAY)
    for point in Point:
        assert killed(point, words, settings)
    write(source, TODAY)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for job in (feed, reconcile):
        monkeypatch.setattr(job, "open_spark", lambda _master: nullcontext(spark))
    monkeypatch.setattr(feeding, "EventWriter", partial(EventWriter, settings=settings))
    assert feed.main(words) == 0, capsys.readouterr()

    told = json.loads(summary.read_text())
    # The last kill came after every lane had been recorded as sent, so none is sent again.
    assert told["resumed"] == 0
    assert (told["standings"]["changed"], told["standings"]["new"]) == (3, 2 * AIRCRAFT)
    until(lambda: stack.left_in_queues() == 0, seconds=90, what="draining")
    assert effects(stack.entries()) == expected(YESTERDAY, TODAY)
    journal = exported(stack, tmp_path / "journal.json")
    assert reconcile.main([*inputs, f"--journal={journal}"]) == 0, capsys.readouterr()


def exported(stack: Stack, file: Path) -> Path:
    """The journal's entries as JSON lines."""
    entries = [entry for of_session in stack.entries().values() for entry in of_session]
    file.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return file


def killed(point: Point, words: Sequence[str], settings: Mapping[str, str]) -> bool:
    """Run a feed whose driver is killed at a point, and see that nothing of it lives on."""
    command = [sys.executable, "-m", "tests.spark.doomed_feed", point, *words]
    environment = os.environ | QUICK | dict(settings)
    with subprocess.Popen(command, env=environment, start_new_session=True) as child:
        status = wait_for_end(child, seconds=FEED_SECONDS_MAX)
    until(lambda: is_gone(child.pid), seconds=60, what="the end of Java and its tasks")
    return status == -signal.SIGKILL


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


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
