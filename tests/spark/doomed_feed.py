"""The feed as a program whose driver is killed: `python -m tests.spark.doomed_feed POINT WORDS...`.

SIGKILL strikes the driver at the named point; nothing gets to clean up. What its Java and its tasks
do until they notice is theirs.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial
from typing import Never

from shared.domain.message import Message
from shared.settings import Settings
from shared.wiring import open_producer
from spark import feed
from spark.feeding import dataframe as feeding
from spark.feeding.manifest import PLANNED, SENT, Manifest, ManifestStep
from spark.send.datasource import EventWriter, LockstepDataSource
from spark.send.rows import SendCounts, SendMessages

DRIVER = "DOOMED_DRIVER"
# A task's operations before the one that is cut off.
WHOLE_OPERATIONS = 3


class Point(StrEnum):
    """Where the driver dies."""

    WRITTEN = "plan-written-but-not-bound"
    SENDING = "in-the-middle-of-a-write"
    SENT = "all-sent-but-not-noted"


def kill_driver() -> Never:
    """Kill the driver, and this process if it is another one."""
    os.kill(int(os.environ[DRIVER]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("nobody survives SIGKILL")


def die_before(step: str) -> None:
    """Kill the driver when it would take a step of the manifest."""
    take = Manifest.write_step

    def doomed(manifest: Manifest, next_one: ManifestStep) -> bool:
        if next_one.step == step:
            kill_driver()
        return take(manifest, next_one)

    setattr(Manifest, "write_step", doomed)  # noqa: B010 - as plain assignment, no method


@asynccontextmanager
async def cut_off(settings: Mapping[str, str]) -> AsyncIterator[SendMessages]:
    """The product's producer, but an operation ends after one message reached one namespace."""
    chosen = Settings.read(settings)
    left = WHOLE_OPERATIONS
    async with open_producer(chosen) as producer:

        async def send(messages: Sequence[Message]) -> SendCounts:
            nonlocal left
            left -= 1
            if left < 0:
                bus = producer.delivery.bus
                await bus.send(chosen.regions[0], chosen.queue, messages[:1])
                kill_driver()
            published = await producer.send(messages)
            return SendCounts(published.sent, published.pending)

        yield send


class DoomedDataSource(LockstepDataSource):
    """The product's data source with a driver that dies while a task sends."""

    open_sender = staticmethod(cut_off)


def main() -> int:
    point, *words = sys.argv[1:]
    os.environ[DRIVER] = str(os.getpid())
    match Point(point):
        case Point.WRITTEN:
            die_before(PLANNED)
        case Point.SENDING:
            feeding.__dict__["EventWriter"] = partial(EventWriter, source=DoomedDataSource)
        case Point.SENT:
            die_before(SENT)
    return feed.main(words)


if __name__ == "__main__":
    sys.exit(main())
