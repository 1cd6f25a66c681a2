"""`python -m chaos.sender`: publishes the load with the product's producer, and may be killed.

What it was told is safe goes into its ledger before anything else of the session is sent. Started
again, it goes on where the ledger ends: an operation whose answer it did not live to hear is sent
again, under the same ids. SIGTERM lets it end what it has begun.
"""

import asyncio
import logging
import os
import signal
import sys
import threading
import time
import zlib
from argparse import ArgumentParser, Namespace
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chaos.load import Operation
from chaos.names import GROUP, HURRY
from chaos.records import Record, read_lines
from demo.control import Control, ControlRefused
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.publishing.message import SessionMessage
from shared.publishing.opening import open_idempotent_producer
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingOptions
from shared.publishing.producer import IdempotentProducer
from shared.settings import Settings

LANES = 24
# How fast it is, in messages a second, as long as it is to be calm.
CALM_RATE = 15.0
AGAIN_SECONDS = 0.3
LOOK_SECONDS = 1.0

log = logging.getLogger("chaos.sender")


@dataclass
class Pace:
    """How fast is sent: so many messages a second, and none while the queues are too full."""

    rate: float
    backlog_max: int
    control: Control
    next_at: float = field(default_factory=time.monotonic)
    may_send: asyncio.Event = field(default_factory=asyncio.Event)

    async def turn(self, messages: int) -> None:
        """Return when so many messages may be sent."""
        await self.may_send.wait()
        now = time.monotonic()
        # A pause is not made up for by a burst of more than a second's messages.
        at = max(self.next_at, now - 1.0)
        self.next_at = at + messages / self.rate
        await asyncio.sleep(max(0.0, at - now))

    def hurry(self, rate: float) -> None:
        """Be as fast as this from now on."""
        self.rate = rate

    async def watch(self) -> None:
        """Look at the queues now and then, for ever; what cannot be seen holds nobody up."""
        while True:
            try:
                depths = await asyncio.to_thread(self.control.depths)
                queues = [region[self.control.queue] for region in depths.values()]
                waiting = max(queue["active"] + queue["locked"] for queue in queues)
            except ControlRefused:
                waiting = 0
            if waiting < self.backlog_max:
                self.may_send.set()
            else:
                self.may_send.clear()
            await asyncio.sleep(LOOK_SECONDS)


@dataclass
class Sender:
    """Sends operations, in their order within each session, and keeps the ledger."""

    producer: IdempotentProducer
    ledger: Record
    pace: Pace
    stopping: asyncio.Event

    async def send_all(self, lanes: Sequence[deque[Operation]]) -> None:
        """Send every lane's operations side by side."""
        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                group.create_task(self.send_lane(lane))

    async def send_lane(self, lane: deque[Operation]) -> None:
        """Send one after another, until none is left or it is time to stop."""
        while lane:
            operation = lane.popleft()
            await self.pace.turn(len(operation.letters))
            if self.stopping.is_set():
                return
            await self.send(operation)

    async def send(self, operation: Operation) -> None:
        """Publish until it is safe; note that it was begun, and that it is safe."""
        self.note(operation, "begun")
        while True:
            try:
                await self.publish(operation)
            except (Unavailable, OutcomeUnknown) as error:
                log.info("%s %d: %s", operation.session, operation.first, error)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                break
        self.note(operation, "safe")

    async def publish(self, operation: Operation) -> None:
        """Publish once; the same ids find their numbers if they had been given some."""
        messages = [SessionMessage(one.id, one.type, one.body) for one in operation.letters]
        await self.producer.send(messages, session=operation.session)

    def note(self, operation: Operation, what: str) -> None:
        """Append to the ledger."""
        self.ledger.append(
            {
                "at": time.time(),
                "what": what,
                "session": operation.session,
                "first": operation.first,
                "count": len(operation.letters),
            }
        )


async def run(arguments: Namespace) -> None:
    """Send what the ledger does not say is safe already."""
    safe = safe_before(arguments.ledger)
    partitions = {
        session: PartitionPublishingOptions(starting_sequence_number=number)
        for session, number in safe.items()
    }
    options = IdempotentProducerOptions(GROUP, partition_options=partitions)
    stopping = asyncio.Event()
    rate = min(CALM_RATE, arguments.rate) if arguments.calm else arguments.rate
    pace = Pace(rate, arguments.backlog, Control(arguments.control, arguments.queue))
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(HURRY, pace.hurry, arguments.rate)
    watching = asyncio.create_task(pace.watch())
    with Record(arguments.ledger) as ledger:
        settings = Settings.read(os.environ)
        async with open_idempotent_producer(settings, options) as producer:
            sender = Sender(producer, ledger, pace, stopping)
            await sender.send_all(lanes_of(arguments.load, safe))
    watching.cancel()


def safe_before(ledger: Path) -> Mapping[str, int]:
    """How many messages of each session were said to be safe."""
    safe: dict[str, int] = {}
    for line in read_lines(ledger):
        if line["what"] == "safe":
            safe[line["session"]] = line["first"] + line["count"]
    return safe


def lanes_of(load: Path, safe: Mapping[str, int]) -> list[deque[Operation]]:
    """What is left to send; a session is always in the same lane."""
    lanes: defaultdict[int, deque[Operation]] = defaultdict(deque)
    for operation in map(Operation.parse, read_lines(load)):
        if operation.first >= safe.get(operation.session, 0):
            lanes[zlib.crc32(operation.session.encode()) % LANES].append(operation)
    return list(lanes.values())


def parse_arguments(words: Sequence[str]) -> Namespace:
    """Read the command line; the settings come from the environment."""
    parser = ArgumentParser(prog="python -m chaos.sender", description="Publishes a load.")
    parser.add_argument("--load", type=Path, required=True, help="the operations, as JSON lines")
    parser.add_argument("--ledger", type=Path, required=True, help="what is known to be safe")
    parser.add_argument("--rate", type=float, required=True, help="messages a second, at most")
    parser.add_argument("--calm", action="store_true", help="be slow until SIGUSR1")
    parser.add_argument("--backlog", type=int, required=True, help="pause above so many waiting")
    parser.add_argument("--control", required=True, help="the control endpoint")
    parser.add_argument("--queue", required=True, help="the queue whose backlog counts")
    return parser.parse_args(words)


def die_with_parent() -> None:
    """Wait for the end of standard input, which whoever started us holds open, and end."""
    while os.read(sys.stdin.fileno(), 4096):
        continue
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=die_with_parent, daemon=True).start()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    log.setLevel(logging.INFO)
    asyncio.run(run(parse_arguments(sys.argv[1:])))
