"""From counters to figures: what was written, read and sent, and what it cost."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from operator import add, sub

from testbed.control import CounterKey, Tallies, subtract_tallies

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
    """What happened between two readings; see System for `batch_documents`."""
    rows = subtract_tallies(begin.after, end.before)
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
