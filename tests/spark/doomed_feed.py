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

from shared.usecases.publish import Published

from shared.domain.message import Message
from shared.settings import Settings
from shared.wiring import open_producer
from spark import feed
from spark.datasource import LockstepDataSource
from spark.loading import Load
from spark.manifest import PLANNED, SENT, Manifest, Step
from spark.sending import Send

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
    take = Manifest.take

    def doomed(manifest: Manifest, next_one: Step) -> bool:
        if next_one.step == step:
            kill_driver()
        return take(manifest, next_one)

    setattr(Manifest, "take", doomed)  # noqa: B010 - as plain assignment, no method


@asynccontextmanager
async def cut_off(settings: Mapping[str, str]) -> AsyncIterator[Send]:
    """The product's producer, but an operation ends after one message reached one namespace."""
    chosen = Settings.read(settings)
    left = WHOLE_OPERATIONS
    async with open_producer(chosen) as producer:

        async def send(messages: Sequence[Message]) -> Published:
            nonlocal left
            left -= 1
            if left < 0:
                bus = producer.delivery.bus
                await bus.send(chosen.regions[0], chosen.queue, messages[:1])
                kill_driver()
            return await producer.send(messages)

        yield send


class DoomedDataSource(LockstepDataSource):
    """The product's data source with a driver that dies while a task sends."""

    open_send = staticmethod(cut_off)


def main() -> int:
    """Doom the driver, then feed."""
    point, *words = sys.argv[1:]
    os.environ[DRIVER] = str(os.getpid())
    match Point(point):
        case Point.WRITTEN:
            die_before(PLANNED)
        case Point.SENDING:
            feed.__dict__["Load"] = partial(Load, source=DoomedDataSource)
        case Point.SENT:
            die_before(SENT)
    return feed.main(words)


if __name__ == "__main__":
    sys.exit(main())
