"""The price of sending for a task of the feed, with small sessions and with large ones.

    python -m proof.bench.spark_feed.sending [--events N] [--logs DIR]

Sends the same events to both namespaces of a local cloud in three ways that take turns: encoded
once for both namespaces, as a task of the feed does; by azure-servicebus in the same batches, which
sessions share; and by azure-servicebus with batches of one session each. A round of each comes
first and is not counted. *busy us* is this process's processor time for an event, both namespaces.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import Row

from proof.bench.spark_feed.runs import add_logs_argument, running_fresh_cloud
from proof.testbed.cloud import app_settings
from shared.domain.message import Message
from shared.settings import Settings
from shared.wiring import Adapters, open_producer
from spark.datasource import OpenSender, open_sender
from spark.gathering import GatheringBus
from spark.options import ROWS_MAX_DEFAULT, read_app_settings
from spark.sending import SendCounts, SendMessages, SendPolicy, send_rows

EVENTS_A_SESSION = (5, 50)
ROUNDS = 3
BODY = json.dumps({"amount": 1, "text": "x" * 300})
HEAD = f"{'events a session':>18}{'way':>26}{'events':>9}{'events/s':>10}{'busy us':>9}"


@asynccontextmanager
async def open_plain_sender(settings: Mapping[str, str]) -> AsyncIterator[SendMessages]:
    """Open the producer as it is, whose batches have one session each."""
    async with open_producer(Settings.read(settings)) as producer:

        async def send(messages: Sequence[Message]) -> SendCounts:
            published = await producer.send(messages)
            return SendCounts(published.sent, published.pending)

        yield send


@asynccontextmanager
async def open_gathering_sender(settings: Mapping[str, str]) -> AsyncIterator[SendMessages]:
    """Open the producer whose batches the sessions share, all of it by azure-servicebus."""
    chosen = Settings.read(settings)
    adapters = Adapters.of(chosen)
    bus = GatheringBus(adapters.bus)
    adapters = replace(adapters, delivery=replace(adapters.delivery, bus=bus))
    async with open_producer(chosen, adapters) as producer:

        async def send(messages: Sequence[Message]) -> SendCounts:
            published = await producer.send(messages)
            return SendCounts(published.sent, published.pending)

        yield send


WAYS: Mapping[str, OpenSender] = {
    "SDK, one session a batch": open_plain_sender,
    "SDK, shared batches": open_gathering_sender,
    "encoded once": open_sender,
}


async def send_round(open_way: OpenSender, settings: Mapping[str, str], rows: list[Row]) -> None:
    async with open_way(settings) as send:
        counts = await send_rows(rows, send, SendPolicy(ROWS_MAX_DEFAULT), lambda _: None)
    if counts != SendCounts(len(rows)):
        raise SystemExit(f"{counts} of {len(rows)}: a region was late, so this measures nothing")


def make_rows(events: int, a_session: int, name: str) -> list[Row]:
    return [
        Row(
            session=f"{name}-{place // a_session}",
            group="bench",
            sequence=place % a_session,
            type="account.add",
            body=BODY,
            id=f"{name}-{place}",
            time="2026-01-02T03:04:05+00:00",
        )
        for place in range(events)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m proof.bench.spark_feed.sending",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--events", type=int, default=10_000, help="in each round (10000)")
    add_logs_argument(parser)
    options = parser.parse_args()
    sys.stdout.write(HEAD + "\n")
    with (
        tempfile.TemporaryDirectory(prefix="bench-spark-") as scratch,
        running_fresh_cloud(Path(scratch), options.logs) as feed_cloud,
    ):
        settings = read_app_settings(app_settings(feed_cloud.cloud))
        for a_session in EVENTS_A_SESSION:
            compare_ways(settings, options.events, a_session)


def compare_ways(settings: Mapping[str, str], events: int, a_session: int) -> None:
    took = dict.fromkeys(WAYS, (0.0, 0.0))
    for each in range(ROUNDS + 1):
        for way, open_way in WAYS.items():
            rows = make_rows(events, a_session, f"{list(WAYS).index(way)}-{a_session}-{each}")
            began = time.monotonic(), time.process_time()
            asyncio.run(send_round(open_way, settings, rows))
            if each:
                seconds, busy = took[way]
                seconds += time.monotonic() - began[0]
                took[way] = (seconds, busy + time.process_time() - began[1])
    for way, (seconds, busy) in took.items():
        sent = ROUNDS * events
        figures = f"{sent:9}{sent / seconds:10.0f}{1e6 * busy / sent:9.0f}"
        sys.stdout.write(f"{a_session:18}{way:>26}{figures}\n")


if __name__ == "__main__":
    main()
