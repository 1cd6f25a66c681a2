"""A longer selection extends a shorter one: same numbers, same ids, same bytes."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.samples.flights.validation import (
    select_first_days,
    select_rejected_flights,
    validate_flights,
)
from tests.flight_cells import CANCELLED
from tests.spark.flights import assert_same_table, events_of, flight, table

pytestmark = pytest.mark.spark


def source(spark: SparkSession) -> DataFrame:
    """Three days; on day one a flight leaves a day late, after a cancellation of day two."""
    a_day_late = flight(sched_dep_time="700", dep_delay="1500", dep_time="800", arr_time="900")
    return table(
        spark,
        flight(day="3"),
        flight(**CANCELLED, day="2", sched_dep_time="600"),
        a_day_late,
        flight(day="2", tailnum="N24211"),
        flight(tailnum="N24211"),
        flight(day="99", tailnum="N619AA"),
    )


@pytest.mark.proof
def test_every_event_of_a_shorter_selection_is_in_the_longer_one(spark: SparkSession) -> None:
    flights = source(spark)

    one, two, three = (
        set(events_of(validate_flights(select_first_days(flights, days))).collect())
        for days in (1, 2, 3)
    )

    assert [len(one), len(two), len(three)] == [4, 7, 9]
    assert one < two < three


def test_days_past_the_end_select_everything(spark: SparkSession) -> None:
    flights = source(spark)

    assert_same_table(select_first_days(flights, 99), flights)


def test_a_row_without_a_readable_day_is_reported_in_every_selection(spark: SparkSession) -> None:
    found = select_rejected_flights(validate_flights(select_first_days(source(spark), 1))).collect()

    assert [(row["tailnum"], row["reason"]) for row in found] == [("N619AA", "no such day")]
