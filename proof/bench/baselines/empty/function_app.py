"""A function that does nothing with its messages: what any app on such a host could reach."""

import azure.functions as func

from proof.bench.baselines import take_messages

app = func.FunctionApp()


@take_messages(app)
async def receive(message: func.ServiceBusMessage) -> None:
    """Return, which settles the message."""
