"""What a flight says, when, and in which order: on small tables, compared whole."""

import hashlib

import pytest
from pyspark.sql import SparkSession

from spark.samples.flights.validation import validate_flights
from spark.schemas import EVENTS
from spark.send.arranging import arrange_in_event_order
from tests.flight_cells import CANCELLED
from tests.spark.flights import assert_same_table, bodies, events_of, flight, table, told

pytestmark = pytest.mark.spark


def event(session: str, sequence: int, time: str, body: str) -> tuple[object, ...]:
    """An event of group `flights`, with its id worked out independently."""
    place = f"flights\n{session}\n{sequence}".encode()
    identity = hashlib.sha256(place).hexdigest()[:32]
    return (session, "flights", sequence, "flight.status", body, identity, time)


def test_a_flight_departs_and_arrives_and_a_cancelled_one_says_only_that(
    spark: SparkSession,
) -> None:
    flights = table(
        spark,
        flight(),
        flight(**CANCELLED, tailnum="N535JB", flight="79", carrier="B6", dest="MCO"),
    )

    found = events_of(validate_flights(flights))

    expected = [
        event(
            "N14228",
            0,
            "2013-01-01T05:17:00",
            '{"at":"2013-01-01T05:17:00","delay_minutes":2,"destination":"IAH",'
            '"flight":"UA1545","origin":"EWR","status":"departed"}',
        ),
        event(
            "N14228",
            1,
            "2013-01-01T08:30:00",
            '{"at":"2013-01-01T08:30:00","delay_minutes":11,"destination":"IAH",'
            '"flight":"UA1545","origin":"EWR","status":"arrived"}',
        ),
        event(
            "N535JB",
            0,
            "2013-01-01T05:15:00",
            '{"at":"2013-01-01T05:15:00","delay_minutes":null,"destination":"MCO",'
            '"flight":"B679","origin":"EWR","status":"cancelled"}',
        ),
    ]
    assert_same_table(found, spark.createDataFrame(expected, EVENTS))


CLOCKS: dict[str, tuple[dict[str, str | None], list[str]]] = {
    "departed at 2400": (
        {"sched_dep_time": "2359", "dep_delay": "1", "dep_time": "2400", "arr_time": "340"},
        ["departed 2013-01-02T00:00:00", "arrived 2013-01-02T03:40:00"],
    ),
    "arrived at 2400": (
        {"sched_dep_time": "2030", "dep_delay": "0", "dep_time": "2030", "arr_time": "2400"},
        ["departed 2013-01-01T20:30:00", "arrived 2013-01-02T00:00:00"],
    ),
    "arrived past midnight": (
        {"sched_dep_time": "2245", "dep_delay": "-5", "dep_time": "2240", "arr_time": "15"},
        ["departed 2013-01-01T22:40:00", "arrived 2013-01-02T00:15:00"],
    ),
    "delayed over midnight": (
        {"sched_dep_time": "2250", "dep_delay": "105", "dep_time": "35", "arr_time": "155"},
        ["departed 2013-01-02T00:35:00", "arrived 2013-01-02T01:55:00"],
    ),
    "delayed by a night": (
        {"sched_dep_time": "900", "dep_delay": "1301", "dep_time": "641", "arr_time": "1242"},
        ["departed 2013-01-02T06:41:00", "arrived 2013-01-02T12:42:00"],
    ),
    "left early, the day before": (
        {"sched_dep_time": "5", "dep_delay": "-10", "dep_time": "2355", "arr_time": "130"},
        ["departed 2012-12-31T23:55:00", "arrived 2013-01-01T01:30:00"],
    ),
    "diverted": (
        {"arr_time": None, "arr_delay": None},
        ["departed 2013-01-01T05:17:00"],
    ),
}


def test_clocks_become_instants(spark: SparkSession) -> None:
    flights = [flight(tailnum=name, **changes) for name, (changes, _) in CLOCKS.items()]

    found = told(spark, *flights)

    assert found == {name: expected for name, (_, expected) in CLOCKS.items()}


def test_the_summer_time_gap_does_not_move_a_flight(spark: SparkSession) -> None:
    at_half_past_two = flight(
        month="3", day="10", sched_dep_time="230", dep_time="230", dep_delay="0", arr_time="500"
    )

    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        found = told(spark, at_half_past_two)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    assert found == {"N14228": ["departed 2013-03-10T02:30:00", "arrived 2013-03-10T05:00:00"]}


def test_an_aircraft_is_numbered_by_departure_and_then_by_flight(spark: SparkSession) -> None:
    late = flight(sched_dep_time="600", dep_delay="300", dep_time="1100", arr_time="1200")
    noon = flight(sched_dep_time="1000", dep_delay="0", dep_time="1000", arr_time="1050")
    twin = noon | {"flight": "1700"}

    rows = events_of(validate_flights(table(spark, late, twin, noon))).orderBy("sequence").collect()

    assert [row["sequence"] for row in rows] == [0, 1, 2, 3, 4, 5]
    assert [(body["flight"], body["at"]) for body in bodies(rows)] == [
        ("UA1545", "2013-01-01T10:00:00"),
        ("UA1545", "2013-01-01T10:50:00"),
        ("UA1700", "2013-01-01T10:00:00"),
        ("UA1700", "2013-01-01T10:50:00"),
        ("UA1545", "2013-01-01T11:00:00"),
        ("UA1545", "2013-01-01T12:00:00"),
    ]


def test_partitions_hold_whole_sessions_in_the_order_of_the_day(spark: SparkSession) -> None:
    fleet = [flight(tailnum=f"N{number}") for number in range(20)]
    later = [
        flight(tailnum=f"N{number}", dep_time="1215", sched_dep_time="1215", dep_delay="0")
        for number in range(20)
    ]
    rows = events_of(validate_flights(table(spark, *later, *fleet)))

    lanes = arrange_in_event_order(rows, 2).rdd.glom().collect()

    sessions = [{row["session"] for row in lane} for lane in lanes]
    assert all(sessions)
    assert not sessions[0] & sessions[1]
    assert sum(len(lane) for lane in lanes) == 80
    for lane in lanes:
        for session in {row["session"] for row in lane}:
            numbers = [row["sequence"] for row in lane if row["session"] == session]
            assert numbers == [0, 1, 2, 3]
        # An 8:30 arrival listed after the 12:15 departure waits for it; all else is by the clock.
        departures = [row["time"] for row in lane if '"departed"' in row["body"]]
        assert departures == sorted(departures)
