"""The sender of a run: publishes the workload by the product's producer, and may be killed.

    python -m proof.chaos.sender WORKLOAD LEDGER RATE CONTROL QUEUE [slow]

What it was told is safe goes into its ledger before anything else of the session is sent. Started
again, it goes on where the ledger ends: an operation whose response it did not live to see is sent
again, under the same ids. SIGTERM lets it end what it has begun.
"""

import asyncio
import logging
import os
import signal
import sys
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local.testing.children import end_with_parent
from local.testing.control import ControlClient, ControlRefused
from proof.chaos.messages import FULL_RATE_SIGNAL, GROUP
from proof.chaos.records import Record, read_lines
from proof.chaos.workload import PublishOperation
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.publishing.message import SessionMessage
from shared.publishing.opening import open_idempotent_producer
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingOptions
from shared.publishing.producer import IdempotentProducer
from shared.settings import Settings

LANES = 24
# Messages a second as long as it is to be slow.
SLOW_RATE = 15.0
# Above so many messages in a queue nothing is sent.
BACKLOG_MAX = 2_000
AGAIN_SECONDS = 0.3
POLL_SECONDS = 1.0

log = logging.getLogger("proof.chaos.sender")


@dataclass
class SendRate:
    """A limit on sending: so many messages a second, and none while the queues are too full."""

    rate: float
    control: ControlClient
    queue: str
    next_at: float = field(default_factory=time.monotonic)
    may_send: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self, messages: int) -> None:
        await self.may_send.wait()
        now = time.monotonic()
        # A pause is not made up for by a burst of more than a second's messages.
        at = max(self.next_at, now - 1.0)
        self.next_at = at + messages / self.rate
        await asyncio.sleep(max(0.0, at - now))

    async def watch(self) -> None:
        """Look at the queues now and then, for ever; a cloud that is down holds nobody up."""
        while True:
            try:
                depths = await asyncio.to_thread(self.control.read_depths)
                queues = [region[self.queue] for region in depths.values()]
                waiting = max(queue["active"] + queue["locked"] for queue in queues)
            except ControlRefused:
                waiting = 0
            if waiting < BACKLOG_MAX:
                self.may_send.set()
            else:
                self.may_send.clear()
            await asyncio.sleep(POLL_SECONDS)


@dataclass
class WorkloadSender:
    """Sends operations, in their order within each session, and keeps the ledger."""

    producer: IdempotentProducer
    ledger: Record
    rate: SendRate
    stopping: asyncio.Event

    async def send_lane(self, lane: deque[PublishOperation]) -> None:
        while lane:
            operation = lane.popleft()
            await self.rate.wait(len(operation.messages))
            if self.stopping.is_set():
                return
            await self.send(operation)

    async def send(self, operation: PublishOperation) -> None:
        """Publish until it is safe; note that it was begun, and that it is safe."""
        messages = [SessionMessage(one.id, one.type, one.body) for one in operation.messages]
        self.note(operation, "begun")
        while True:
            try:
                # The same ids find their numbers if they had been given some.
                await self.producer.send(messages, session=operation.session)
            except (Unavailable, OutcomeUnknown) as error:
                log.info("%s %d: %s", operation.session, operation.first, error)
                await asyncio.sleep(AGAIN_SECONDS)
            else:
                break
        self.note(operation, "safe")

    def note(self, operation: PublishOperation, what: str) -> None:
        place = {"session": operation.session, "first": operation.first}
        count = len(operation.messages)
        self.ledger.append({"at": time.time(), "what": what, **place, "count": count})


async def run(workload: str, ledger: str, rate: str, control: str, queue: str, *slow: str) -> None:
    safe, full_rate = read_safe(Path(ledger)), float(rate)
    partitions = {
        session: PartitionPublishingOptions(starting_sequence_number=number)
        for session, number in safe.items()
    }
    options = IdempotentProducerOptions(GROUP, partition_options=partitions)
    stopping = asyncio.Event()
    first_rate = min(SLOW_RATE, full_rate) if slow else full_rate
    send_rate = SendRate(first_rate, ControlClient(control), queue)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    loop.add_signal_handler(FULL_RATE_SIGNAL, setattr, send_rate, "rate", full_rate)
    watching = asyncio.create_task(send_rate.watch())
    with Record(Path(ledger)) as record:
        settings = Settings.read(os.environ)
        async with open_idempotent_producer(settings, options) as producer:
            sender = WorkloadSender(producer, record, send_rate, stopping)
            async with asyncio.TaskGroup() as group:
                for lane in make_lanes(Path(workload), safe):
                    group.create_task(sender.send_lane(lane))
    watching.cancel()


def read_safe(ledger: Path) -> Mapping[str, int]:
    safe: dict[str, int] = {}
    for line in read_lines(ledger):
        if line["what"] == "safe":
            safe[line["session"]] = line["first"] + line["count"]
    return safe


def make_lanes(workload: Path, safe: Mapping[str, int]) -> list[deque[PublishOperation]]:
    """Return what is left to send; a session is always in the same lane."""
    lanes: defaultdict[int, deque[PublishOperation]] = defaultdict(deque)
    for operation in map(PublishOperation.parse, read_lines(workload)):
        if operation.first >= safe.get(operation.session, 0):
            lanes[zlib.crc32(operation.session.encode()) % LANES].append(operation)
    return list(lanes.values())


if __name__ == "__main__":
    end_with_parent()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    log.setLevel(logging.INFO)
    asyncio.run(run(*sys.argv[1:]))
