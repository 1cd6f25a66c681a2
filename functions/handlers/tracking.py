"""Tracking aircraft: the business that a team replaces with its own.

A session is an aircraft; its messages are the serial statuses of its flights.
"""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from lockstep import Context, Handlers

handlers = Handlers()


class FlightStatus(BaseModel):
    """An event of a flight; times are local to the airport named."""

    status: Literal["departed", "arrived", "cancelled"]
    flight: str
    origin: str
    destination: str
    at: datetime
    delay_minutes: int | None = None


class Aircraft(BaseModel):
    """The place of an aircraft, and what it has been through."""

    events: int = 0
    status: Literal["unknown", "airborne", "landed", "grounded"] = "unknown"
    airport: str | None = None
    flight: str | None = None
    cancelled: int = 0
    delay_minutes: int = 0


@handlers.register("flight.status", state=Aircraft, body=FlightStatus)
def track(aircraft: Aircraft, event: FlightStatus, _: Context) -> Aircraft:
    """Follow the aircraft to its next status."""
    seen = aircraft.model_copy(update={"events": aircraft.events + 1, "flight": event.flight})
    late = aircraft.delay_minutes + max(event.delay_minutes or 0, 0)
    match event.status:
        case "departed":
            return seen.model_copy(update={"status": "airborne", "airport": None})
        case "arrived":
            landed = {"status": "landed", "airport": event.destination, "delay_minutes": late}
            return seen.model_copy(update=landed)
        case "cancelled":
            grounded = {"status": "grounded", "airport": event.origin}
            return seen.model_copy(update=grounded | {"cancelled": aircraft.cancelled + 1})
