"""Sends waves of messages to a running system and counts what each region's work on them costs.

The secondary region's copies are sent when the primary is done: that is what their delay is for,
and so the work of the two is told apart on a machine of any speed. A message is counted in three
situations. *Cold*: the first message of a session. *Warm*: the later ones of the same visit; what
several messages cost less what the first does. *Again*: one more message of a session that both
regions have worked on before.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, dataclass
from operator import add, sub
from typing import Any

from azure.cosmos import ContainerProxy

from local.testing import control
from local.testing.cloud import CloudProcess
from local.testing.control import CounterKey, Tallies, flatten_counters
from local.testing.patience import wait_until
from proof.bench.load import make_statuses, send
from proof.bench.systems import System
from proof.testbed.cloud import running_cloud
from proof.testbed.command import RunFailed
from shared.domain.message import Message

WAVE_SECONDS_MAX = 120.0
COUNT_QUERY = "SELECT VALUE COUNT(1) FROM c"
# The change feed is looked at every five seconds.
FEED_SECONDS = 6.0
# The first message of a visit is cold, the others are warm.
SESSIONS, VISIT_MESSAGES = 20, 20
BACKLOG_SESSIONS, BACKLOG_MESSAGES = 5, 60
WRITES = frozenset({"create", "upsert", "replace", "delete", "patch", "batch"})
READS = frozenset({"read", "query"})
GIVEN_BACK = frozenset({"abandon", "dead-letter", "expire-lock"})
SUCCEEDED = frozenset({"200", "201", "204"})
# Leases and tokens are paid by the clock and by the connection, not by the message.
LEASES_CONTAINER = "leases"
FEED, AUTHORIZE = "feed", "authorize"


@dataclass(frozen=True, slots=True)
class ServiceUsage:
    """Amounts, of a stretch of time or of a message.

    A write is a request that changed something; a transactional batch is one. `documents` are what
    those requests wrote. `refused` are writes that changed nothing (409, 412, a failed batch).
    `feed_units` are those of change feed pages that held something. `given_back` are abandons, dead
    letters and lost locks.
    """

    writes: float = 0.0
    documents: float = 0.0
    refused: float = 0.0
    reads: float = 0.0
    units: float = 0.0
    feed_units: float = 0.0
    bus_operations: float = 0.0
    given_back: float = 0.0

    def plus(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(*map(add, astuple(self), astuple(other)))

    def minus(self, other: "ServiceUsage") -> "ServiceUsage":
        return ServiceUsage(*map(sub, astuple(self), astuple(other)))

    def per(self, messages: int) -> "ServiceUsage":
        return ServiceUsage(*(amount / messages for amount in astuple(self)))


@dataclass(frozen=True, slots=True)
class CounterReading:
    """A look at the counters and at how many documents there are.

    Looking at the documents is counted too, so there are counters from before it and after it.
    """

    before: Tallies
    documents: int
    after: Tallies


def compute_usage(
    begin: CounterReading, end: CounterReading, batch_documents: int | None
) -> ServiceUsage:
    """Return what was used between two readings; see System for `batch_documents`."""
    rows = control.subtract_tallies(begin.after, end.before)
    added = end.documents - begin.documents
    total = ServiceUsage(documents=count_batched(rows, added, batch_documents))
    for row, (count, units) in rows.items():
        total = total.plus(compute_row_usage(*row, count, units))
    return total


def compute_row_usage(
    component: str, operation: str, status: str, count: int, units: float
) -> ServiceUsage:
    match component.partition(".")[0]:
        case "servicebus" if operation in GIVEN_BACK:
            return ServiceUsage(bus_operations=count, given_back=count)
        case "servicebus" if operation != AUTHORIZE:
            return ServiceUsage(bus_operations=count)
        case "cosmos" if holds_documents(component):
            return compute_document_usage(operation, status, count, units)
    return ServiceUsage()


def holds_documents(component: str) -> bool:
    return component.startswith("cosmos.") and component != f"cosmos.{LEASES_CONTAINER}"


def compute_document_usage(operation: str, status: str, count: int, units: float) -> ServiceUsage:
    if operation == FEED:
        return ServiceUsage(feed_units=units if status == "200" else 0.0)
    if operation in READS:
        return ServiceUsage(reads=count, units=units)
    if operation in WRITES and status in SUCCEEDED:
        documents = 0 if operation == "batch" else count
        return ServiceUsage(writes=count, units=units, documents=documents)
    return ServiceUsage(refused=count, units=units)


def count_batched(
    rows: Mapping[CounterKey, tuple[int, float]], added: int, batch_documents: int | None
) -> int:
    if batch_documents is None:
        return added - sum(
            count
            for (component, _, status), (count, _) in rows.items()
            if holds_documents(component) and status == "201"
        )
    return batch_documents * sum(
        count for row, (count, _) in rows.items() if row[1:] == ("batch", "200")
    )


@dataclass(frozen=True, slots=True)
class MessageCosts:
    primary: ServiceUsage
    secondary: ServiceUsage

    @property
    def both(self) -> ServiceUsage:
        return self.primary.plus(self.secondary)

    def minus(self, other: "MessageCosts") -> "MessageCosts":
        primary, secondary = other.primary, other.secondary
        return MessageCosts(self.primary.minus(primary), self.secondary.minus(secondary))

    def per(self, messages: int) -> "MessageCosts":
        return MessageCosts(self.primary.per(messages), self.secondary.per(messages))


@dataclass(slots=True)
class MessageWaves:
    """Waves of messages into one system; `sent` is how many messages each region has been sent."""

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
            lambda: self.cloud.control.count_completed(region) >= self.sent,
            seconds=WAVE_SECONDS_MAX,
            what=f"{region} did not complete {self.sent} messages",
            error=RunFailed,
        )
        return self.usage(before, self.read())

    def read(self) -> CounterReading:
        before = self.cloud.control.read_counters()
        documents = sum(count_documents(container) for container in self.containers)
        after = self.cloud.control.read_counters()
        return CounterReading(flatten_counters(before), documents, flatten_counters(after))

    def usage(self, begin: CounterReading, end: CounterReading) -> ServiceUsage:
        return compute_usage(begin, end, self.system.batch_documents)


def count_documents(container: ContainerProxy) -> int:
    answer: Any = list(container.query_items(COUNT_QUERY, enable_cross_partition_query=True))
    return int(answer[0])


@dataclass(frozen=True, slots=True)
class VisitCosts:
    """The costs of a message by situation; `feed_units` are the change feed's, of any message."""

    cold: MessageCosts
    warm: MessageCosts
    again: MessageCosts
    feed_units: float


def count_visits(system: System) -> VisitCosts:
    with running_waves(system) as waves:
        # The first message of a process pays for what it looks up once.
        waves.run(["warm-up"], range(1))
        began, sent = waves.read(), waves.sent
        firsts = [f"first-{n}" for n in range(SESSIONS)]
        visited = [f"visit-{n}" for n in range(SESSIONS)]
        cold = waves.run(firsts, range(1))
        visit = waves.run(visited, range(VISIT_MESSAGES))
        again = waves.run(visited, range(VISIT_MESSAGES, VISIT_MESSAGES + 1))
        if LEASES_CONTAINER in waves.cloud.contract["containers"]:
            time.sleep(FEED_SECONDS)
        feed = waves.usage(began, waves.read()).feed_units / (waves.sent - sent)
    return VisitCosts(
        cold.per(SESSIONS),
        visit.minus(cold).per(SESSIONS * (VISIT_MESSAGES - 1)),
        again.per(SESSIONS),
        feed,
    )


def count_backlog(system: System) -> MessageCosts:
    """Return the costs of a message in sessions that have many waiting."""
    with running_waves(system) as waves:
        sessions = [f"backlog-{n}" for n in range(BACKLOG_SESSIONS)]
        costs = waves.run(sessions, range(BACKLOG_MESSAGES))
    return costs.per(BACKLOG_SESSIONS * BACKLOG_MESSAGES)


@contextmanager
def running_waves(system: System) -> Iterator[MessageWaves]:
    with ExitStack() as stack:
        app = ("--app", str(system.app), "--config", str(system.config))
        cloud = stack.enter_context(running_cloud(*app, settings=system.settings))
        # The containers that hold what messages leave behind.
        names = [name for name in cloud.contract["containers"] if name != LEASES_CONTAINER]
        containers = [stack.enter_context(cloud.open_container(name)) for name in names]
        yield MessageWaves(cloud, containers, system)
