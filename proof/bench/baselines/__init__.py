"""The rivals of the product: two well-known patterns, and a function that does nothing."""

import os
from collections.abc import Callable
from typing import Any

import azure.functions as func


def take_messages(app: func.FunctionApp) -> Callable[..., Any]:
    """Make a function take the messages of its region's session queue; returning settles them."""
    return app.service_bus_queue_trigger(
        arg_name="message",
        queue_name="baseline",
        connection=f"ServiceBus_{os.environ['REGION']}",
        is_sessions_enabled=True,
        data_type=func.DataType.BINARY,
    )
