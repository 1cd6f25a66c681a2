"""What the services counted between two readings becomes what a message costs."""

import pytest

from proof.bench.counts.waves import CounterReading, ServiceUsage, compute_usage
from local.testing.control import Tallies


@pytest.mark.parametrize(
    ("counted", "documents", "batch_documents", "usage"),
    [
        pytest.param(
            {
                ("cosmos.journal", "create", "201"): (3, 16.5),
                ("cosmos.journal", "create", "409"): (2, 2.0),
                ("cosmos.journal", "replace", "200"): (4, 44.0),
                ("cosmos.journal", "read", "404"): (1, 1.0),
                ("cosmos.journal", "query", "200"): (1, 4.6),
            },
            3,
            None,
            ServiceUsage(writes=7, documents=7, refused=2, reads=2, units=68.1),
            id="reads and writes are told apart",
        ),
        pytest.param(
            {
                ("cosmos", "account", "200"): (9, 9.0),
                ("cosmos.leases", "replace", "200"): (5, 110.0),
                ("cosmos.journal", "feed", "304"): (6, 27.6),
                ("cosmos.journal", "feed", "200"): (2, 10.4),
                ("servicebus.east", "authorize", "ok"): (2, 0.0),
            },
            0,
            None,
            ServiceUsage(feed_units=10.4),
            id="what the clock pays for is left out or kept apart",
        ),
        pytest.param(
            {
                ("cosmos.documents", "batch", "200"): (3, 49.5),
                ("cosmos.documents", "batch", "207"): (1, 1.0),
                ("cosmos.documents", "upsert", "200"): (3, 33.0),
            },
            3,
            2,
            ServiceUsage(writes=6, documents=9, refused=1, units=83.5),
            id="a system says how many documents its batches write",
        ),
        pytest.param(
            {
                (f"servicebus.{region}", operation, "ok"): (1, 0.0)
                for region in ("east", "west")
                for operation in ("send", "deliver", "complete", "abandon", "expire-lock")
            },
            0,
            None,
            ServiceUsage(bus_operations=10, given_back=4),
            id="abandons and lost locks are given back",
        ),
    ],
)
def test_usage_is_what_the_services_counted(
    counted: Tallies, documents: int, batch_documents: int | None, usage: ServiceUsage
) -> None:
    begin, end = CounterReading({}, 0, {}), CounterReading(counted, documents, counted)

    assert compute_usage(begin, end, batch_documents) == usage


def test_only_what_came_between_two_readings_counts_and_looking_does_not() -> None:
    look, batch = ("cosmos.journal", "query", "200"), ("cosmos.journal", "batch", "200")
    begin = CounterReading({look: (1, 2.0)}, 5, {look: (2, 4.0)})
    end = CounterReading({look: (2, 4.0), batch: (1, 6.0)}, 7, {look: (3, 6.0), batch: (1, 6.0)})

    assert compute_usage(begin, end, None) == ServiceUsage(writes=1, documents=2, units=6.0)
