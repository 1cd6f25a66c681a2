"""The tracking business: a table of what an event does, and a flight under every disturbance."""

from datetime import datetime
from typing import Literal

import pytest

from functions.handlers.tracking import Aircraft, FlightStatus, handlers, track
from shared.domain.handler import Context
from shared.testkit import Given, exercise, given
from tests.world import message

PARKED = Aircraft(events=4, status="landed", airport="IAH", flight="UA1", delay_minutes=7)

type What = Literal["departed", "arrived", "cancelled"]


def status(what: What, delay: int | None = None) -> FlightStatus:
    """Something that happens to a flight from Newark to Houston."""
    return FlightStatus(
        status=what,
        flight="UA1545",
        origin="EWR",
        destination="IAH",
        at=datetime.fromisoformat("2013-01-01T05:17:00"),
        delay_minutes=delay,
    )


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (status("departed", 2), {"status": "airborne", "airport": None, "delay_minutes": 7}),
        (status("arrived", 11), {"status": "landed", "airport": "IAH", "delay_minutes": 18}),
        (status("arrived", -5), {"status": "landed", "airport": "IAH", "delay_minutes": 7}),
        (status("arrived", None), {"status": "landed", "airport": "IAH", "delay_minutes": 7}),
        (status("cancelled", None), {"status": "grounded", "airport": "EWR", "cancelled": 1}),
    ],
)
def test_an_aircraft_follows_its_flights(event: FlightStatus, expected: dict[str, object]) -> None:
    after = track(PARKED, event, Context(message(0)))

    assert after.model_dump() == PARKED.model_dump() | expected | {"events": 5, "flight": "UA1545"}


def flown(aircraft: str) -> list[Given]:
    """A day of an aircraft: there, a cancelled flight back, and back."""
    events = [status("departed", 2), status("arrived", 11), status("cancelled"), status("departed")]
    return [given(aircraft, "flight.status", event) for event in events]


def test_a_day_of_two_aircraft_comes_to_the_same_whatever_happens_to_its_messages() -> None:
    report = exercise(handlers, [*flown("N14228"), *flown("N24211")[:2]])

    assert report.state("N14228") == {
        "events": 4,
        "status": "airborne",
        "airport": None,
        "flight": "UA1545",
        "cancelled": 1,
        "delay_minutes": 11,
    }
    assert report.state("N24211")["status"] == "landed"
    assert report.outputs() == []
    assert report.faults == ()


def test_an_event_that_says_nothing_known_is_a_fault_that_stops_its_aircraft_only() -> None:
    lost = given("N14228", "flight.status", {"status": "lost"})

    messages = [lost, *flown("N14228"), *flown("N24211")]
    report = exercise(handlers, messages, hash_seeds=(), faults=True)

    (fault,) = report.faults
    assert fault.session == "N14228"
    assert "status: Input should be 'departed', 'arrived' or 'cancelled'" in fault.reason
    assert report.state("N14228") == {}
    assert report.state("N24211")["events"] == 4
