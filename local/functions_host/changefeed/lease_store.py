"""The lease container: every write is guarded by the etag last read."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

from local.functions_host.changefeed.lease import Lease


class LeaseLost(Exception):
    """Somebody else wrote the lease since it was read."""


@dataclass(frozen=True, slots=True)
class LeaseStore:
    """The leases of one processor; `prefix` tells it apart from others on the same feed."""

    container: ContainerProxy
    prefix: str

    async def ensure(self, feed_ranges: Sequence[dict[str, Any]]) -> list[str]:
        """Make a lease for each range that has none; the answer is the ids of all of them."""
        ids = []
        for feed_range in feed_ranges:
            token = f"{feed_range['Range']['min']}-{feed_range['Range']['max']}"
            lease = Lease(
                f"{self.prefix}..{token}", token, feed_range, None, None, datetime.now(UTC)
            )
            ids.append(lease.id)
            if await self.find(lease.id) is None:
                await self._create(lease)
        return ids

    async def find(self, lease_id: str) -> Lease | None:
        """Read one lease."""
        try:
            return Lease.read(await self.container.read_item(lease_id, lease_id))
        except CosmosResourceNotFoundError:
            return None

    async def write(self, lease: Lease) -> Lease:
        """Replace a lease; the answer carries the new etag. Raises LeaseLost."""
        try:
            document = await self.container.replace_item(
                lease.id,
                lease.document(),
                etag=lease.etag,
                match_condition=MatchConditions.IfNotModified,
            )
        except (CosmosAccessConditionFailedError, CosmosResourceNotFoundError) as error:
            raise LeaseLost(lease.id) from error
        return Lease.read(document)

    async def _create(self, lease: Lease) -> None:
        try:
            await self.container.create_item(lease.document())
        except CosmosResourceExistsError:
            return  # another host was first, which is as good
