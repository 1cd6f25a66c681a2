"""How often a feed goes over its rows: exact numbers, so that a pass more is noticed.

By the settings of the other tests the first test of test_feed_by_a_manifest.py counts the same.
"""

from collections.abc import Iterator

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.spark.bookings import LINES, Bank, counted_passes
from tests.spark.conftest import SMALL


@pytest.fixture
def as_users_run(spark: SparkSession) -> Iterator[SparkContext]:
    """Spark's own defaults, by which each shuffle is a job too."""
    for name in ("spark.sql.adaptive.enabled", "spark.sql.codegen.wholeStage"):
        spark.conf.unset(name)
    yield spark.sparkContext
    for name, value in SMALL.items():
        spark.conf.set(name, value)


@pytest.mark.proof
def test_a_run_takes_so_many_jobs_and_shuffles(as_users_run: SparkContext, bank: Bank) -> None:
    for name, expected in (("a first run", [19, 7]), ("a second run, with nothing new", [16, 5])):
        with counted_passes(as_users_run, name) as passes:
            bank.feed(LINES)
        assert passes == expected, name
