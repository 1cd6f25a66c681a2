"""How often a feed goes over its rows: exact numbers, so that a pass more is noticed."""

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.spark.bookings import LINES, Bank
from tests.spark.conftest import SMALL


@pytest.fixture
def as_users_run(spark: SparkSession) -> Iterator[SparkContext]:
    """Spark's own defaults, by which each shuffle is a job too."""
    for name in ("spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage"):
        spark.conf.unset(name)
    yield spark.sparkContext
    for name, value in SMALL.items():
        spark.conf.set(name, value)


def count_passes(context: SparkContext, bank: Bank, name: str) -> tuple[int, int]:
    """The jobs and the shuffles of a feed: Spark numbers each shuffle that it plans."""
    java = context._jsc.sc()
    context.setJobGroup(name, name)
    before = java.newShuffleId()
    bank.feed(LINES)
    jobs = context.statusTracker().getJobIdsForGroup(name)
    return len(jobs), java.newShuffleId() - before - 1


def test_a_run_takes_so_many_jobs_and_shuffles(as_users_run: SparkContext, bank: Bank) -> None:
    assert count_passes(as_users_run, bank, "a first run") == (19, 7)
    assert count_passes(as_users_run, bank, "a second run, with nothing new") == (16, 5)
