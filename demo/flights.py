"""What the source says must have been sent: the feed's rules again, in plain Python.

A second implementation on purpose: it shares no code with the feed and none with the engine, so a
mistake in either shows as a difference. A session is an aircraft; its statuses are ordered by the
scheduled day, the instant of departure, flight, origin, then departed before arrived.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache
from hashlib import sha256

from demo.history import Sent
from demo.source import COLUMNS, Row

GROUP = "flights"
TYPE = "flight.status"
DAY = timedelta(days=1)
SESSION_CHARACTERS_MAX = 128
UNDATED = date.min
NUMBER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True, slots=True)
class Expected:
    """The messages a source calls for, and how many of its rows cannot become messages."""

    sent: tuple[Sent, ...]
    rejected: int


@dataclass(frozen=True, slots=True)
class Flight:
    """A flight that can be told: what left, or was to leave, and when; what landed, and when."""

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


def expected(read: Callable[[], Iterable[Row | None]], days: int) -> Expected:
    """Recount the messages of the first `days` calendar days that occur in a source.

    The source is read twice, so that a day of a long year costs little memory.
    """
    all_days = {scheduled_day(row and row[:3]) for row in read()} - {UNDATED}
    last = max(sorted(all_days)[:days], default=UNDATED)
    flights: list[Flight] = []
    seen: set[Row] = set()
    rejected = 0
    for row in read():
        day = scheduled_day(row and row[:3])
        if day <= last:
            try:
                flights.append(read_flight(row, day, seen))
            except FlightRejected:
                rejected += 1
    return Expected(sent=tuple(numbered(flights)), rejected=rejected)


@cache
def scheduled_day(cells: Row | None) -> date:
    """Return the day of year, month, day; or UNDATED, which belongs to every selection of days."""
    try:
        year, month, day = (whole(needed(cell)) for cell in cells or (None,))
        return date(year, month, day) if year >= 1000 else UNDATED
    except ValueError:
        return UNDATED


def read_flight(row: Row | None, day: date, seen: set[Row]) -> Flight:
    """Read a row into a flight; FlightRejected says why it cannot be one."""
    if row is None or row in seen or day == UNDATED:
        raise FlightRejected("a broken line, a second copy, or a day no calendar has")
    seen.add(row)
    cells = dict(zip(COLUMNS, row, strict=True))
    scheduled = midnight(day) + clock(needed(cells["sched_dep_time"]))
    left, landed = (read(clock, cells[name]) for name in ("dep_time", "arr_time"))
    delay, arrival_delay = (read(whole, cells[name]) for name in ("dep_delay", "arr_delay"))
    return Flight(
        day=day,
        aircraft=aircraft(cells["tailnum"]),
        name=needed(cells["carrier"]) + str(whole(needed(cells["flight"]), 2**31)),
        origin=needed(cells["origin"]),
        destination=needed(cells["dest"]),
        departure=departure(scheduled, left, delay),
        departed=left is not None,
        departure_delay=None if left is None else delay,
        arrival=arrival(departure(scheduled, left, delay), left, landed),
        arrival_delay=arrival_delay,
    )


def departure(scheduled: datetime, left: timedelta | None, delay: int | None) -> datetime:
    """Return when a flight left, or was to leave; the clock must agree with schedule and delay."""
    if left is None:
        return scheduled
    if delay is None:
        raise FlightRejected("it departed without a delay to date it by")
    actual = scheduled + timedelta(minutes=delay)
    if actual != midnight(actual.date()) + left % DAY:
        raise FlightRejected("its departure contradicts schedule and delay")
    return actual


def arrival(
    departed_at: datetime, left: timedelta | None, landed: timedelta | None
) -> datetime | None:
    """Return when a flight landed: on the day it left, or the next if the clock shows less."""
    if landed is None:
        return None
    if left is None:
        raise FlightRejected("it arrived without having departed")
    overnight = DAY if landed % DAY < left % DAY else timedelta()
    return midnight(departed_at.date()) + landed % DAY + overnight


def numbered(flights: Iterable[Flight]) -> Iterator[Sent]:
    """Identify the statuses of every aircraft."""
    return (message(session, sequence, body) for session, sequence, body in statuses(flights))


def statuses(flights: Iterable[Flight]) -> Iterator[tuple[str, int, str]]:
    """Number the statuses of every aircraft from 0 in their order: session, number, body."""
    sessions: defaultdict[str, list[tuple[tuple[date, datetime, str, str, int], str]]]
    sessions = defaultdict(list)
    for flight in flights:
        place = (flight.day, flight.departure, flight.name, flight.origin)
        for stage, body in enumerate(bodies(flight)):
            sessions[flight.aircraft].append(((*place, stage), body))
    for session, said in sessions.items():
        for sequence, (_, body) in enumerate(sorted(said)):
            yield session, sequence, body


def bodies(flight: Flight) -> Iterator[str]:
    """Yield what the statuses of a flight say, in their order."""
    if not flight.departed:
        yield body(flight, "cancelled", flight.departure, None)
        return
    yield body(flight, "departed", flight.departure, flight.departure_delay)
    if flight.arrival:
        yield body(flight, "arrived", flight.arrival, flight.arrival_delay)


def body(flight: Flight, status: str, at: datetime, delay_minutes: int | None) -> str:
    """Say one status as canonical JSON."""
    said = {
        "at": at.isoformat(),
        "delay_minutes": delay_minutes,
        "destination": flight.destination,
        "flight": flight.name,
        "origin": flight.origin,
        "status": status,
    }
    return json.dumps(said, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def message(session: str, sequence: int, body: str) -> Sent:
    """Identify a message by its place and its content by a digest of type and body."""
    place = f"{GROUP}\n{session}\n{sequence}"
    return Sent(
        session=session,
        sequence=sequence,
        id=sha256(place.encode()).hexdigest()[:32],
        digest=sha256(f"{TYPE}\0{body}".encode()).hexdigest(),
    )


def midnight(day: date) -> datetime:
    """Return the instant a day begins, in the naive local time the source speaks."""
    return datetime.combine(day, time.min)


def aircraft(tail_number: str | None) -> str:
    """Return the session of an aircraft; the broker refuses longer names."""
    if len(needed(tail_number)) > SESSION_CHARACTERS_MAX:
        raise FlightRejected("its tail number is too long for a session")
    return needed(tail_number)


def clock(text: str) -> timedelta:
    """Return the time since midnight that `517` or `2400` shows."""
    hours, minutes = divmod(whole(text), 100)
    if not 0 <= whole(text) <= 2400 or minutes >= 60:
        raise FlightRejected(f"{text} is no time of day")
    return timedelta(hours=hours, minutes=minutes)


def read[T](reading: Callable[[str], T], text: str | None) -> T | None:
    """Read a cell that may be blank."""
    return None if text is None else reading(text)


def whole(text: str, below: int = 2**15) -> int:
    """Read a whole number of the size clocks, delays and dates have."""
    if not NUMBER.fullmatch(text) or not -below <= int(text) < below:
        raise FlightRejected(f"{text} is not a whole number within reason")
    return int(text)


def needed(text: str | None) -> str:
    """Return the cell, which a flight cannot be told without."""
    if text is None:
        raise FlightRejected("a cell is missing")
    return text
