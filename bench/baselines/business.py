"""What both baselines do with a message: the product's tracking handler, on a state document."""

from collections.abc import Mapping
from typing import Any

import azure.functions as func

from functions.handlers.tracking import Aircraft, FlightStatus, track
from shared.domain import wire
from shared.domain.handler import Context


def tracked(state: Mapping[str, Any], delivery: func.ServiceBusMessage) -> dict[str, Any]:
    """The state after a message, as JSON."""
    body = delivery.get_body()
    context = Context(wire.from_properties(delivery.application_properties or {}, body))
    aircraft = track(
        Aircraft.model_validate(state), FlightStatus.model_validate_json(body), context
    )
    return aircraft.model_dump(mode="json")
