"""Send waves of messages to a running system and take the bill of each region's work.

The secondary region's copies are sent when the primary is done: that is what their delay is for,
and so the work of the two is told apart on a machine of any speed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from azure.cosmos import ContainerProxy, CosmosClient

from bench.cloud import Cloud
from bench.counts.bill import LEASES_CONTAINER, Bill, Reading, bill
from bench.load import send, statuses
from bench.systems import System
from shared.domain.message import Message

WAVE_SECONDS_MAX = 120.0
COUNT_QUERY = "SELECT VALUE COUNT(1) FROM c"


@dataclass(frozen=True, slots=True)
class Costs:
    """What a message cost: the primary region's work on it, and the secondary's."""

    primary: Bill
    secondary: Bill

    @property
    def both(self) -> Bill:
        """Both regions together."""
        return self.primary.plus(self.secondary)

    def minus(self, other: "Costs") -> "Costs":
        """What is left without the other."""
        return Costs(self.primary.minus(other.primary), self.secondary.minus(other.secondary))

    def per(self, messages: int) -> "Costs":
        """What one of so many messages cost."""
        return Costs(self.primary.per(messages), self.secondary.per(messages))


@dataclass(slots=True)
class Waves:
    """Waves into one system; `sent` is how many messages each region has been sent."""

    cloud: Cloud
    containers: Sequence[ContainerProxy]
    system: System
    sent: int = 0

    def run(self, sessions: Sequence[str], numbers: range) -> Costs:
        """Send these numbers to every session; returns what all of it cost."""
        messages = [statuses(session, numbers) for session in sessions]
        self.sent += len(sessions) * len(numbers)
        primary, secondary = self.cloud.contract["servicebus"]
        return Costs(self.work(primary, messages), self.work(secondary, messages))

    def work(self, region: str, messages: Sequence[list[Message]]) -> Bill:
        """Send the copies of a region, and wait until it has settled them."""
        before = self.read()
        send(self.cloud.contract["servicebus"][region], self.system.queue, messages)
        self.cloud.until_completed(region, self.sent, seconds=WAVE_SECONDS_MAX)
        return self.bill(before, self.read())

    def read(self) -> Reading:
        """The counters, and how many documents there are."""
        before = self.cloud.tallies()
        documents = sum(count(container) for container in self.containers)
        return Reading(before, documents, self.cloud.tallies())

    def bill(self, begin: Reading, end: Reading) -> Bill:
        """What happened between two readings."""
        return bill(begin, end, self.system.batch_documents)

    @property
    def has_change_feed(self) -> bool:
        """Whether anything reads the change feed, and so costs something later."""
        return LEASES_CONTAINER in self.cloud.contract["containers"]


@contextmanager
def open_containers(cloud: Cloud) -> Iterator[list[ContainerProxy]]:
    """The containers that hold what messages leave behind."""
    account = cloud.contract["cosmos"]
    names = [name for name in cloud.contract["containers"] if name != LEASES_CONTAINER]
    with CosmosClient(account["endpoint"], account["key"]) as client:
        database = client.get_database_client(account["database"])
        yield [database.get_container_client(name) for name in names]


def count(container: ContainerProxy) -> int:
    """How many documents a container holds."""
    answer: Any = list(container.query_items(COUNT_QUERY, enable_cross_partition_query=True))
    return int(answer[0])
