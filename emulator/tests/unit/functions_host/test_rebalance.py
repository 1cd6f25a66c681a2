"""Two processors that share the leases of one feed, without an account."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from local.functions_host.clients import change_feed
from local.functions_host.clients.change_feed import (
    ChangeFeedProcessor,
    FeedLease,
    FeedLeaseLost,
    FeedLeaseStore,
    FeedOptions,
    FeedPage,
)
from local.testing.patience import Patience

RANGES = [f"range-{number}" for number in range(4)]
OPTIONS = FeedOptions(
    poll_delay=0.01,
    acquire_interval=0.03,
    renew_interval=0.03,
    expiration_interval=1.0,
    page_items=10,
    start="Now",
)
SECONDS_MAX = 60.0


class LeasesInMemory:
    """Leases guarded by a number in place of an etag."""

    def __init__(self) -> None:
        self.leases = {
            name: FeedLease(name, name, {}, None, None, datetime.now(UTC), "0") for name in RANGES
        }

    async def ensure(self, feed_ranges: list[Any]) -> list[str]:
        return list(self.leases)

    async def find(self, lease_id: str) -> FeedLease | None:
        return self.leases[lease_id]

    async def write(self, lease: FeedLease) -> FeedLease:
        await asyncio.sleep(0)
        if self.leases[lease.id].etag != lease.etag:
            raise FeedLeaseLost(lease.id)
        self.leases[lease.id] = replace(lease, etag=str(int(lease.etag) + 1))
        return self.leases[lease.id]

    def shares(self) -> dict[str | None, int]:
        """How many leases each host holds."""
        return dict(Counter(lease.owner for lease in self.leases.values()))


class FeedOfNothing:
    """A container in which nothing changes."""

    async def read_feed_ranges(self) -> Any:
        for name in RANGES:
            yield name


async def nothing(*_: Any) -> FeedPage:
    return FeedPage([], None)


async def hand_over(documents: list[dict[str, Any]]) -> bool:
    raise AssertionError("nothing changes here")


def processor_of(host: str, leases: LeasesInMemory) -> ChangeFeedProcessor:
    monitored = cast(Any, FeedOfNothing())
    return ChangeFeedProcessor(host, monitored, cast(FeedLeaseStore, leases), OPTIONS, hand_over)


async def eventually(holds: Callable[[], bool]) -> None:
    patience = Patience(SECONDS_MAX)
    while not holds():
        assert not patience.is_over()
        await asyncio.sleep(0.01)


async def test_a_second_host_gets_half_of_the_leases_and_all_when_the_first_stops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_feed, "read_page", nothing)
    leases = LeasesInMemory()
    first, second = processor_of("first", leases), processor_of("second", leases)

    running = asyncio.create_task(first.run())
    await eventually(lambda: leases.shares() == {"first": 4})
    also_running = asyncio.create_task(second.run())
    await eventually(lambda: leases.shares() == {"first": 2, "second": 2})
    first.stop(1.0)
    await running
    await eventually(lambda: leases.shares() == {"second": 4})
    second.stop(1.0)
    await also_running

    assert leases.shares() == {None: 4}
