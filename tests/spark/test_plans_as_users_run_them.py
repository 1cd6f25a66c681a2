"""The whole-table tests once more with code generation and adaptive plans, as users run them."""

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import SMALL
from tests.spark.test_flights_become_events import (
    test_a_flight_departs_and_arrives_and_a_cancelled_one_says_only_that as whole_events,
)
from tests.spark.test_reconciliation import (
    test_each_difference_is_named_once_and_without_any_nothing_is as disagreements,
)
from tests.spark.test_what_is_new_since_the_last_feed import (
    test_only_what_moved_is_sent_and_numbers_go_on as what_moved,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def as_users_run(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with Spark's own defaults where the other tests have none."""
    for name in SMALL:
        spark.conf.unset(name)
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    spark.conf.set("spark.sql.shuffle.partitions", SMALL["spark.sql.shuffle.partitions"])
    yield spark
    for name, value in SMALL.items():
        spark.conf.set(name, value)


@pytest.mark.parametrize("whole_table", [whole_events, disagreements, what_moved])
def test_the_tables_are_the_same(
    as_users_run: SparkSession, whole_table: Callable[[SparkSession], None]
) -> None:
    whole_table(as_users_run)
