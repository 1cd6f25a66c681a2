"""Sends waves of messages to a running system and counts what each region's work on them costs.

The secondary region's copies are sent when the primary is done: that is what their delay is for,
and so the work of the two is told apart on a machine of any speed. A message is counted in three
situations. *Cold*: the first message of a session. *Warm*: the later ones of the same visit; what
several messages cost less what the first does. *Again*: one more message of a session that both
regions have worked on before.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from azure.cosmos import ContainerProxy

from bench.counts.usage import LEASES_CONTAINER, CounterReading, ServiceUsage, compute_usage
from bench.load import make_statuses, send
from bench.systems import System
from shared.domain.message import Message
from testbed.cloud import CloudProcess, running_cloud
from testbed.command import RunFailed
from testbed.control import count_operations, flatten_counters
from testbed.sampling import wait_until

WAVE_SECONDS_MAX = 120.0
COUNT_QUERY = "SELECT VALUE COUNT(1) FROM c"
# The change feed is looked at every five seconds.
FEED_SECONDS = 6.0
BATCH_MESSAGES = 10
# With batches a host takes one session at a time and holds an empty one for a second.
BATCH_SESSIONS = 5


@dataclass(frozen=True, slots=True)
class MessageCosts:
    primary: ServiceUsage
    secondary: ServiceUsage

    @property
    def both(self) -> ServiceUsage:
        return self.primary.plus(self.secondary)

    def minus(self, other: "MessageCosts") -> "MessageCosts":
        return MessageCosts(
            self.primary.minus(other.primary), self.secondary.minus(other.secondary)
        )

    def per(self, messages: int) -> "MessageCosts":
        return MessageCosts(self.primary.per(messages), self.secondary.per(messages))


@dataclass(slots=True)
class MessageWaves:
    """MessageWaves into one system; `sent` is how many messages each region has been sent."""

    cloud: CloudProcess
    containers: Sequence[ContainerProxy]
    system: System
    sent: int = 0

    def run(self, sessions: Sequence[str], numbers: range) -> MessageCosts:
        messages = [make_statuses(session, numbers) for session in sessions]
        self.sent += len(sessions) * len(numbers)
        primary, secondary = self.cloud.contract["servicebus"]
        return MessageCosts(self.work(primary, messages), self.work(secondary, messages))

    def work(self, region: str, messages: Sequence[list[Message]]) -> ServiceUsage:
        """Send the copies of a region, and wait until it has settled them."""
        before = self.read()
        send(self.cloud.contract["servicebus"][region], self.system.queue, messages)
        wait_until(
            lambda: self.count_settled(region) >= self.sent,
            seconds=WAVE_SECONDS_MAX,
            what=f"{region} did not complete {self.sent} messages",
            error=RunFailed,
        )
        return self.usage(before, self.read())

    def read(self) -> CounterReading:
        control = self.cloud.control
        before = flatten_counters(control.read_counters())
        documents = sum(count_documents(container) for container in self.containers)
        return CounterReading(before, documents, flatten_counters(control.read_counters()))

    def count_settled(self, region: str) -> int:
        counters = self.cloud.control.read_counters()
        return count_operations(counters, f"servicebus.{region}", "complete")

    def usage(self, begin: CounterReading, end: CounterReading) -> ServiceUsage:
        return compute_usage(begin, end, self.system.batch_documents)

    @property
    def has_change_feed(self) -> bool:
        return LEASES_CONTAINER in self.cloud.contract["containers"]


def count_documents(container: ContainerProxy) -> int:
    answer: Any = list(container.query_items(COUNT_QUERY, enable_cross_partition_query=True))
    return int(answer[0])


@dataclass(frozen=True, slots=True)
class CountPlan:
    sessions: int
    each: int


@dataclass(frozen=True, slots=True)
class VisitCosts:
    """What a message of each situation cost; `feed_units` are the change feed's, of any message."""

    cold: MessageCosts
    warm: MessageCosts
    again: MessageCosts
    feed_units: float


def count_visits(system: System, plan: CountPlan) -> VisitCosts:
    with running_waves(system) as waves:
        began = waves.read()
        firsts = [f"first-{n}" for n in range(plan.sessions)]
        visited = [f"visit-{n}" for n in range(plan.sessions)]
        cold = waves.run(firsts, range(1))
        visit = waves.run(visited, range(plan.each))
        again = waves.run(visited, range(plan.each, plan.each + 1))
        if waves.has_change_feed:
            time.sleep(FEED_SECONDS)
        feed = waves.usage(began, waves.read()).feed_units / waves.sent
    return VisitCosts(
        cold.per(plan.sessions),
        visit.minus(cold).per(plan.sessions * (plan.each - 1)),
        again.per(plan.sessions),
        feed,
    )


def count_batches(system: System) -> MessageCosts:
    with running_waves(system) as waves:
        sessions = [f"batch-{n}" for n in range(BATCH_SESSIONS)]
        costs = waves.run(sessions, range(BATCH_MESSAGES))
    return costs.per(BATCH_SESSIONS * BATCH_MESSAGES)


@contextmanager
def running_waves(system: System) -> Iterator[MessageWaves]:
    with ExitStack() as stack:
        app = ("--app", str(system.app))
        cloud = stack.enter_context(running_cloud(*app, settings=system.settings))
        # The containers that hold what messages leave behind.
        names = [name for name in cloud.contract["containers"] if name != LEASES_CONTAINER]
        containers = [stack.enter_context(cloud.open_container(name)) for name in names]
        yield MessageWaves(cloud, containers, system)
