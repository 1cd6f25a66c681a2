"""The lateness of messages that come one at a time, each in a session of its own.

They are sent evenly over a time, and the broker's counter is looked at meanwhile. Which message was
settled the counter does not say: the n-th settlement is held against the n-th message sent. That
is exact for a consumer that works in the order of arrival, and otherwise too kind to the slowest.
"""

import time
from functools import partial
from statistics import quantiles

from azure.servicebus import ServiceBusClient

from local.testing.patience import wait_until
from proof.bench.load import make_status, to_sdk_message
from proof.bench.throughput.consuming import RUN_SECONDS_MAX, Consumption
from proof.testbed.command import RunFailed

# So many sessions of one message each, over so many seconds.
SESSIONS, LOAD_SECONDS = 1_000, 30.0
LOOK_SECONDS = 0.01


def measure_lateness(consumption: Consumption) -> tuple[float, float]:
    """Return how late half and nearly all messages are settled, in seconds after their arrival.

    The consumer is being started. Raises RunFailed where it does not end.
    """
    count = partial(consumption.cloud.control.count_completed, consumption.region)
    wait = partial(wait_until, seconds=RUN_SECONDS_MAX, error=RunFailed, poll_seconds=LOOK_SECONDS)
    with (
        ServiceBusClient.from_connection_string(consumption.connection) as client,
        client.get_queue_sender(consumption.queue) as sender,
    ):
        # Starting up is not part of it.
        sender.send_messages(to_sdk_message(make_status("warm-up", 0)))
        wait(lambda: count() >= 1, what="the consumer did not start")
        before, began = count(), time.monotonic()
        arrived: list[float] = []
        settled: list[float] = []

        def are_all_settled() -> bool:
            """Send what is due, and note which settlements there are by now."""
            due = (time.monotonic() - began) * SESSIONS / LOAD_SECONDS
            while len(arrived) < min(due, SESSIONS):
                sender.send_messages(to_sdk_message(make_status(f"sparse-{len(arrived)}", 0)))
                arrived.append(time.monotonic())
            number = count() - before
            settled.extend([time.monotonic()] * (number - len(settled)))
            return len(settled) >= SESSIONS

        wait(are_all_settled, what=f"fewer than {SESSIONS} messages were settled")
    late = [max(0.0, end - begin) for begin, end in zip(arrived, settled, strict=True)]
    hundredths = quantiles(late, n=100)
    return hundredths[49], hundredths[98]
