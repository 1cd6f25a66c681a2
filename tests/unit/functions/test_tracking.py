"""The tracking business, as a table."""

from datetime import datetime
from typing import Literal

import pytest

from functions.handlers.tracking import Aircraft, FlightStatus, track
from shared.domain.handling import Context
from tests.world import message

PARKED = Aircraft(events=4, status="landed", airport="IAH", flight="UA1", delay_minutes=7)


def status(what: Literal["departed", "arrived", "cancelled"], delay: int | None) -> FlightStatus:
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
