"""The lateness of messages that come one at a time, each in a session of its own.

They are sent evenly over a time, and the broker's counter is looked at meanwhile. Which message was
settled the counter does not say: the n-th settlement is held against the n-th message sent. That
is exact for a consumer that works in the order of arrival, and otherwise too kind to the slowest.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from statistics import quantiles

from azure.servicebus import ServiceBusClient

from local.testing.patience import wait_until
from proof.bench.load import make_status, to_sdk_message
from proof.bench.throughput.consuming import RUN_SECONDS_MAX, Consumption
from proof.testbed.command import RunFailed

LOOK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class SparseLoad:
    """So many sessions of one message each, over so many seconds."""

    sessions: int = 1_000
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class Lateness:
    """Seconds from a message's arrival in the queue until it is settled, of half and nearly all."""

    median: float
    nearly_all: float


def measure_lateness(consumption: Consumption, load: SparseLoad) -> Lateness:
    """Send the load to a consumer that is being started; raises RunFailed where it does not end."""
    send_evenly(consumption, "warm-up", SparseLoad(1, 0.0))
    # Starting up is not part of it.
    wait_until(
        lambda: count_settled(consumption) >= 1,
        seconds=RUN_SECONDS_MAX,
        what="the consumer did not start",
        error=RunFailed,
    )
    before = count_settled(consumption)
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(send_evenly, consumption, "sparse", load)
        settled = watch_settlements(consumption, before, load.sessions, sending)
    return summarize_lateness(sending.result(), settled)


def send_evenly(consumption: Consumption, name: str, load: SparseLoad) -> list[float]:
    """Send one message to each session; when the queue had each."""
    arrived = []
    with (
        ServiceBusClient.from_connection_string(consumption.connection) as client,
        client.get_queue_sender(consumption.queue) as sender,
    ):
        began = time.monotonic()
        for number in range(load.sessions):
            due = began + load.seconds * number / load.sessions
            time.sleep(max(0.0, due - time.monotonic()))
            sender.send_messages(to_sdk_message(make_status(f"{name}-{number}", 0)))
            arrived.append(time.monotonic())
    return arrived


def watch_settlements(
    consumption: Consumption, before: int, expected: int, sending: Future[list[float]]
) -> list[float]:
    """Return when each of the expected settlements had been counted."""
    settled: list[float] = []

    def are_all_settled() -> bool:
        if sending.done():
            sending.result()
        number = count_settled(consumption) - before
        settled.extend([time.monotonic()] * (number - len(settled)))
        return len(settled) >= expected

    wait_until(
        are_all_settled,
        seconds=RUN_SECONDS_MAX,
        what=f"fewer than {expected} messages were settled",
        error=RunFailed,
        poll_seconds=LOOK_SECONDS,
    )
    return settled


def count_settled(consumption: Consumption) -> int:
    return consumption.cloud.control.count_completed(consumption.region)


def summarize_lateness(arrived: Sequence[float], settled: Sequence[float]) -> Lateness:
    # A settlement may be counted before the sender had its answer.
    late = [max(0.0, end - begin) for begin, end in zip(arrived, settled, strict=True)]
    hundredths = quantiles(late, n=100)
    return Lateness(hundredths[49], hundredths[98])
