"""Every row becomes events or a reject with a reason; none disappears."""

import pytest
from pyspark.sql import SparkSession

from spark.samples.flights.source import REJECTED_FLIGHTS
from spark.samples.flights.validation import select_rejected_flights, validate_flights
from tests.flight_cells import CANCELLED
from tests.spark.flights import assert_same_table, events_of, flight, table

pytestmark = pytest.mark.spark

REFUSED = {
    "missing tailnum": flight(tailnum=None),
    "missing sched_dep_time": flight(**CANCELLED, sched_dep_time=None),
    "missing dest": flight(dest=None),
    "missing dep_delay": flight(dep_delay=None),
    "malformed year": flight(year="MMXIII"),
    "malformed dep_time": flight(dep_time="575", sched_dep_time="615", dep_delay="0"),
    "malformed sched_dep_time": flight(sched_dep_time="2460"),
    "malformed arr_time": flight(arr_time="2401"),
    "malformed arr_delay": flight(arr_delay="late"),
    "malformed dep_delay": flight(dep_delay="2147483647"),
    "malformed flight": flight(flight="15-45"),
    "malformed tailnum": flight(tailnum="N" * 129),
    "malformed dest": flight(dest="I\ufffdH"),
    "no such day": flight(month="2", day="30"),
    "arrival without departure": flight(dep_time=None, dep_delay=None),
    "dep_time contradicts schedule and delay": flight(dep_delay="3"),
}


def test_each_reject_keeps_its_cells_and_says_why(spark: SparkSession) -> None:
    broken = flight(**dict.fromkeys(flight())) | {"broken_line": "2013,1,1"}
    flights = [*REFUSED.items(), ("broken line", broken)]

    found = select_rejected_flights(validate_flights(table(spark, *(row for _, row in flights))))

    expected = [
        tuple((row | {"reason": reason})[n] for n in REJECTED_FLIGHTS.names)
        for reason, row in flights
    ]
    assert_same_table(found, spark.createDataFrame(expected, REJECTED_FLIGHTS))


def test_a_reject_leaves_no_event_behind_and_no_hole_in_the_numbers(spark: SparkSession) -> None:
    good = flight(sched_dep_time="1215", dep_time="1217", arr_time="1530")

    found = events_of(validate_flights(table(spark, flight(dep_time="9999"), good)))

    assert [row["sequence"] for row in found.orderBy("sequence").collect()] == [0, 1]


def test_the_second_of_two_identical_rows_is_a_duplicate(spark: SparkSession) -> None:
    other = flight(dest="ORD", dep_time="616", sched_dep_time="614")

    verdicts = validate_flights(table(spark, flight(), other, flight(), flight()))

    assert [row["reason"] for row in select_rejected_flights(verdicts).collect()] == [
        "duplicate",
        "duplicate",
    ]
    assert events_of(verdicts).count() == 4


def test_a_row_with_several_faults_is_refused_once(spark: SparkSession) -> None:
    verdicts = validate_flights(table(spark, flight(tailnum=None, year="?", dep_time="9999")))

    assert [row["reason"] for row in select_rejected_flights(verdicts).collect()] == [
        "missing tailnum"
    ]
