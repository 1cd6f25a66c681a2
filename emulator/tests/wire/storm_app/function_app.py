"""An app for the host's tests: it writes down each message before it succeeds, or fails at random.

The lines of all hosts go to the file in the setting STORM_LOG, in the order of the runs.
"""

import os
import random

import azure.functions as func

app = func.FunctionApp()
log = os.open(os.environ["STORM_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
failing = float(os.environ["STORM_FAILING"])


@app.service_bus_queue_trigger(
    arg_name="message", queue_name="storm", connection="ServiceBus", is_sessions_enabled=True
)
async def handle(message: func.ServiceBusMessage) -> None:
    """Write down session and body."""
    os.write(log, f"{message.session_id} {message.get_body().decode()}\n".encode())
    if random.random() < failing:
        raise RuntimeError("failing at random")
