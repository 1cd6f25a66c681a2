"""Leases on the ranges of a change feed: their documents, their container, and who takes which.

A lease says who reads a range and up to where it was read. Every write is guarded by the etag last
read. The documents have the shape that the change feed processor of .NET keeps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)


@dataclass(frozen=True, slots=True)
class FeedLease:
    """One lease; `owner` None means that nobody holds it."""

    id: str
    token: str
    feed_range: Mapping[str, Any]
    owner: str | None
    continuation: str | None
    renewed: datetime
    etag: str = ""

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "FeedLease":
        """Read a document; a missing field raises KeyError."""
        return cls(
            document["id"],
            document["LeaseToken"],
            document["FeedRange"],
            document["Owner"],
            document["ContinuationToken"],
            datetime.fromisoformat(document["timestamp"]),
            document["_etag"],
        )

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "version": 1,
            "LeaseToken": self.token,
            "FeedRange": dict(self.feed_range),
            "Owner": self.owner,
            "ContinuationToken": self.continuation,
            "properties": {},
            "timestamp": self.renewed.isoformat(),
            "Mode": "Latest Version Feed",
        }

    def held_by(self, owner: str | None) -> "FeedLease":
        """The lease with another owner, renewed now."""
        return replace(self, owner=owner, renewed=datetime.now(UTC))

    def advanced_to(self, continuation: str) -> "FeedLease":
        """The lease advanced, and renewed by that."""
        return replace(self, continuation=continuation, renewed=datetime.now(UTC))

    def is_free(self, now: datetime, expiration_seconds: float) -> bool:
        """Whether nobody owns it, or its owner has not renewed it in time."""
        return self.owner is None or (now - self.renewed).total_seconds() > expiration_seconds


class FeedLeaseLost(Exception):
    """Somebody else wrote the lease since it was read."""


@dataclass(frozen=True, slots=True)
class FeedLeaseStore:
    """The leases of one processor; `prefix` tells it apart from others on the same feed."""

    container: ContainerProxy
    prefix: str

    async def ensure(self, feed_ranges: Sequence[dict[str, Any]]) -> list[str]:
        """Make a lease for each range that has none; return the ids of all of them."""
        ids = []
        for feed_range in feed_ranges:
            token = f"{feed_range['Range']['min']}-{feed_range['Range']['max']}"
            lease_id = f"{self.prefix}..{token}"
            ids.append(lease_id)
            if await self.find(lease_id) is None:
                lease = FeedLease(lease_id, token, feed_range, None, None, datetime.now(UTC))
                try:
                    await self.container.create_item(lease.document())
                except CosmosResourceExistsError:
                    continue  # another host was first, which is as good
        return ids

    async def find(self, lease_id: str) -> FeedLease | None:
        try:
            return FeedLease.read(await self.container.read_item(lease_id, lease_id))
        except CosmosResourceNotFoundError:
            return None

    async def write(self, lease: FeedLease) -> FeedLease:
        """Replace a lease; the result carries the new etag. Raises FeedLeaseLost."""
        try:
            document = await self.container.replace_item(
                lease.id,
                lease.document(),
                etag=lease.etag,
                match_condition=MatchConditions.IfNotModified,
            )
        except (CosmosAccessConditionFailedError, CosmosResourceNotFoundError) as error:
            raise FeedLeaseLost(lease.id) from error
        return FeedLease.read(document)


def leases_to_take(
    leases: Sequence[FeedLease], host: str, now: datetime, expiration_seconds: float
) -> list[FeedLease]:
    """Choose leases for a host: free ones up to its share, else one from a host that has more.

    Hosts that choose alike converge to equal shares, give or take one. A live lease is taken from
    another host only one at a time, and only if that host holds at least two more than this one.
    """
    free = [lease for lease in leases if lease.is_free(now, expiration_seconds)]
    held = Counter(lease.owner for lease in leases if lease not in free)
    hosts = len(held.keys() | {host})
    share = -(-len(leases) // hosts)  # rounded up
    wanted = share - held[host]
    if free:
        return free[: max(wanted, 0)]
    richest, most = max(held.items(), key=lambda item: item[1], default=(None, 0))
    if wanted > 0 and most >= held[host] + 2:
        return [lease for lease in leases if lease.owner == richest][:1]
    return []
