"""The recount of the source: order, numbers, content, and the dirt that real flights have."""

import gzip
import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from zipfile import ZipFile

import pyarrow as pa
import pytest
from pyarrow import parquet

from proof.testbed.flights import (
    COLUMNS,
    ExpectedMessages,
    Flight,
    FlightRejected,
    FlightRow,
    expect_messages,
    list_status_bodies,
    parse_day,
    read_flight,
    read_rows,
)
from tests.flight_cells import CANCELLED, ON_TIME


def row(**changes: str | None) -> FlightRow:
    cells = ON_TIME | changes
    return tuple(cells[name] for name in COLUMNS)


def statuses_of(**changes: str | None) -> list[dict[str, object]]:
    return [json.loads(body) for body in list_status_bodies(flight(**changes))]


def flight(**changes: str | None) -> Flight:
    return read_flight(row(**changes), parse_day(row(**changes)[:3]), set())


def canonical(at: str, delay_minutes: int, status: str) -> str:
    when = f'"at":"{at}","delay_minutes":{delay_minutes}'
    return f'{{{when},"destination":"IAH","flight":"UA1545","origin":"EWR","status":"{status}"}}'


def recount(rows: Sequence[FlightRow | None], days: int = 1) -> ExpectedMessages:
    return expect_messages(lambda: rows, days)


def test_a_flight_departs_and_arrives_unless_it_never_did() -> None:
    assert list(list_status_bodies(flight())) == [
        canonical("2013-01-01T05:17:00", 2, "departed"),
        canonical("2013-01-01T08:30:00", 11, "arrived"),
    ]
    (cancelled,) = statuses_of(**CANCELLED)
    assert (cancelled["status"], cancelled["at"]) == ("cancelled", "2013-01-01T05:15:00")
    assert cancelled["delay_minutes"] is None
    (departed,) = statuses_of(arr_time=None, arr_delay=None)
    assert departed["status"] == "departed"
    _, diverted = statuses_of(arr_delay=None)
    assert diverted["delay_minutes"] is None


@pytest.mark.parametrize(
    ("changes", "departed", "arrived"),
    [
        ({"arr_time": "12"}, "2013-01-01T05:17:00", "2013-01-02T00:12:00"),
        ({"arr_time": "2400"}, "2013-01-01T05:17:00", "2013-01-02T00:00:00"),
        (
            {"sched_dep_time": "2359", "dep_time": "2400", "dep_delay": "1", "arr_time": "327"},
            "2013-01-02T00:00:00",
            "2013-01-02T03:27:00",
        ),
        (
            {"sched_dep_time": "2330", "dep_time": "110", "dep_delay": "100", "arr_time": "300"},
            "2013-01-02T01:10:00",
            "2013-01-02T03:00:00",
        ),
        (
            {"sched_dep_time": "5", "dep_time": "2355", "dep_delay": "-10", "arr_time": "300"},
            "2012-12-31T23:55:00",
            "2013-01-01T03:00:00",
        ),
    ],
)
def test_clocks_around_midnight_fall_on_the_right_day(
    changes: dict[str, str], departed: str, arrived: str
) -> None:
    assert [status["at"] for status in statuses_of(**changes)] == [departed, arrived]


@pytest.mark.parametrize(
    "changes",
    [
        {"tailnum": None},
        {"tailnum": "N" * 129},
        {"carrier": None},
        {"origin": None},
        {"flight": "many"},
        {"sched_dep_time": None},
        {"sched_dep_time": "560"},
        {"sched_dep_time": "soon"},
        {"dep_time": "2401"},
        {"dep_time": "-5"},
        {"dep_delay": None},
        {"dep_delay": "3"},
        {"dep_time": None},
        {"arr_delay": "40000"},
    ],
)
def test_a_flight_that_makes_no_sense_is_rejected(changes: dict[str, str | None]) -> None:
    with pytest.raises(FlightRejected):
        flight(**changes)


def test_messages_are_numbered_from_nought_within_each_aircraft_in_order_of_departure() -> None:
    later = row(sched_dep_time="1200", dep_time="1205", dep_delay="5", arr_time="1400")
    other = row(tailnum="N24211", **CANCELLED)

    sent = recount([later, other, row()]).sent

    assert [(message.session, message.sequence) for message in sent] == [
        ("N14228", 0),
        ("N14228", 1),
        ("N14228", 2),
        ("N14228", 3),
        ("N24211", 0),
    ]
    texts = list(list_status_bodies(flight()))
    assert [message.digest for message in sent[:2]] == [
        sha256(b"flight.status\0" + text.encode()).hexdigest() for text in texts
    ]
    assert sent[3].id == sha256(b"flights\nN14228\n3").hexdigest()[:32]


def test_the_scheduled_day_comes_before_the_instant_so_that_more_days_only_append() -> None:
    day_late = row(dep_time="700", dep_delay="1545", arr_time="900")
    next_day = row(day="2", sched_dep_time="600", dep_time="600", dep_delay="0")

    one, two = (recount([next_day, day_late], days).sent for days in (1, 2))

    assert two[: len(one)] == one
    assert len(two) == 4


def test_rows_that_cannot_become_messages_are_counted_for_the_days_that_the_source_has() -> None:
    rows = [row(), row(), None, row(day="32"), row(tailnum=None), row(day="2", tailnum=None)]

    assert recount(rows).rejected == 4
    assert recount(rows, days=2).rejected == 5
    assert len(recount([row(), row(day="9")], days=2).sent) == 4


def text_of(cells: Sequence[str]) -> str:
    return f"{','.join(COLUMNS)},extra\n{','.join(cells)},x\nbroken,line\n"


FILE_CELLS = [*list(ON_TIME.values())[:-2], " EWR ", "NA"]
FILE_ROW = row(origin="EWR", dest=None)


def test_a_csv_file_is_read_in_every_packing(tmp_path: Path) -> None:
    plain, gz, zipped = (tmp_path / f"flights.csv{end}" for end in ("", ".gz", ".zip"))
    plain.write_text(text_of(FILE_CELLS))
    gz.write_bytes(gzip.compress(plain.read_bytes()))
    with ZipFile(zipped, "w") as archive:
        archive.write(plain, plain.name)

    for path in (plain, gz, zipped):
        assert list(read_rows(path)) == [FILE_ROW, None]


def test_a_parquet_file_is_read_with_numbers_made_whole(tmp_path: Path) -> None:
    numbers = {"year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time"}
    columns = {
        name: [float(cell), None] if name in numbers else [cell, None]
        for name, cell in ON_TIME.items()
    }
    path = tmp_path / "flights.parquet"
    parquet.write_table(pa.table(columns), path)

    assert list(read_rows(path)) == [row(), (None,) * len(COLUMNS)]
