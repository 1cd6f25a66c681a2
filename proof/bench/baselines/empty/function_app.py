"""A function that does nothing with its messages: what any app on such a host could reach."""

import os

import azure.functions as func

app = func.FunctionApp()


@app.service_bus_queue_trigger(
    arg_name="message",
    queue_name="baseline",
    connection=f"ServiceBus_{os.environ['REGION']}",
    is_sessions_enabled=True,
    data_type=func.DataType.BINARY,
)
async def receive(message: func.ServiceBusMessage) -> None:
    """Return, which settles the message."""
