"""Flights with faces: N14228 leaves Newark for Houston at 5:17 on New Year's Day."""

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Row, SparkSession

from spark.samples.flights.events import build_flight_events
from spark.samples.flights.source import FLIGHTS
from spark.samples.flights.validation import validate_flights
from tests.flight_cells import ON_TIME

TO_HOUSTON = ON_TIME | {"broken_line": None}


def flight(**changes: str | None) -> dict[str, str | None]:
    """The flight to Houston, but for some cells."""
    unknown = changes.keys() - TO_HOUSTON.keys()
    assert not unknown, unknown
    return TO_HOUSTON | changes


def table(spark: SparkSession, *flights: Mapping[str, str | None]) -> DataFrame:
    """Flights as a source gives them."""
    return spark.createDataFrame(
        [tuple(f[name] for name in FLIGHTS.names) for f in flights], FLIGHTS
    )


def events_of(validated: DataFrame) -> DataFrame:
    """The events of validated flights."""
    return build_flight_events(validated, "flights")


def told(spark: SparkSession, *flights: Mapping[str, str | None]) -> dict[str, list[str]]:
    """What the events of each session say, in order: `departed 2013-01-01T05:17:00`."""
    found: dict[str, list[str]] = {}
    rows = events_of(validate_flights(table(spark, *flights)))
    for row in rows.orderBy("session", "sequence").collect():
        body = json.loads(row["body"])
        found.setdefault(row["session"], []).append(f"{body['status']} {body['at']}")
    return found


def bodies(rows: Sequence[Row]) -> list[dict[str, object]]:
    """The bodies of events, read."""
    return [json.loads(row["body"]) for row in rows]


def assert_same_table(found: DataFrame, expected: DataFrame) -> None:
    """Equal columns, types and rows, in whatever order the rows come."""
    assert [(f.name, f.dataType) for f in found.schema] == [
        (f.name, f.dataType) for f in expected.schema
    ]
    assert sorted(found.collect(), key=repr) == sorted(expected.collect(), key=repr)
