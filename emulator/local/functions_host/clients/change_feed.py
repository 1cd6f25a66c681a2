"""The change feed processor: takes leases, reads their ranges, and hands changes over.

A lease says who reads a range and up to where it was read. It advances after its changes were
handed over, however that ended, unless the hand-over was stopped, and is renewed meanwhile. Every
write is guarded by the etag last read. The documents have the shape that the change feed processor
of .NET keeps.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal

from azure.core import MatchConditions
from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import (
    CosmosAccessConditionFailedError,
    CosmosResourceExistsError,
    CosmosResourceNotFoundError,
)

log = logging.getLogger(__name__)

type FeedStart = Literal["Beginning", "Now"] | datetime
type ChangeHandler = Callable[[list[dict[str, Any]]], Coroutine[Any, Any, bool]]

RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The options of a binding, durations in seconds."""

    poll_delay: float
    acquire_interval: float
    renew_interval: float
    expiration_interval: float
    page_items: int
    start: FeedStart


@dataclass(frozen=True, slots=True)
class FeedPage:
    """Changed documents, oldest change first, and where to go on; None if that is unchanged."""

    documents: list[dict[str, Any]]
    continuation: str | None


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
        return replace(self, owner=owner, renewed=datetime.now(UTC))

    def advanced_to(self, continuation: str) -> "FeedLease":
        return replace(self, continuation=continuation, renewed=datetime.now(UTC))

    def is_free(self, now: datetime, expiration_seconds: float) -> bool:
        return self.owner is None or (now - self.renewed).total_seconds() > expiration_seconds


class FeedLeaseLost(Exception):
    """The lease was written by somebody else since it was read."""


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
        unmodified = MatchConditions.IfNotModified
        try:
            document = await self.container.replace_item(
                lease.id, lease.document(), etag=lease.etag, match_condition=unmodified
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


@dataclass(eq=False)
class ChangeFeedProcessor:
    _host: str
    _monitored: ContainerProxy
    _leases: FeedLeaseStore
    _options: FeedOptions
    _handler: ChangeHandler
    _followers: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _stopping: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _drain_seconds: float = field(default=0.0, init=False)

    async def run(self) -> None:
        """Take leases and follow them until told to stop, then give them back.

        The client's errors end it while it prepares; later the operation is tried again.
        """
        feed_ranges = [feed_range async for feed_range in self._monitored.read_feed_ranges()]
        ids = await self._leases.ensure(feed_ranges)
        while not self._stopping.is_set():
            try:
                await self._acquire(ids)
            except AzureError as error:
                log.warning("the leases cannot be read: %s", first_line(error))
            await self._sleep(self._options.acquire_interval)
        followers = list(self._followers.values())
        if followers:
            _, late = await asyncio.wait(followers, timeout=self._drain_seconds)
            for follower in late:
                follower.cancel()
            await asyncio.gather(*followers, return_exceptions=True)

    def stop(self, drain_seconds: float) -> None:
        """Tell `run` to end; a hand-over in progress has until the limit."""
        self._drain_seconds = drain_seconds
        self._stopping.set()

    async def _acquire(self, ids: list[str]) -> None:
        found = [await self._leases.find(lease_id) for lease_id in ids]
        leases = [lease for lease in found if lease is not None]
        expiration = self._options.expiration_interval
        for lease in leases_to_take(leases, self._host, datetime.now(UTC), expiration):
            if lease.id in self._followers:
                continue
            try:
                held = await self._leases.write(lease.held_by(self._host))
            except FeedLeaseLost:
                continue  # another host was faster
            follower = asyncio.create_task(self._follow(held), name=lease.id)
            self._followers[lease.id] = follower
            follower.add_done_callback(lambda ended: self._followers.pop(ended.get_name(), None))

    async def _follow(self, lease: FeedLease) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    lease = await self._read_once(lease)
                except AzureError as error:
                    log.warning("the change feed cannot be read: %s", first_line(error))
                    await self._sleep(RETRY_SECONDS)
            await self._leases.write(lease.held_by(None))
        except FeedLeaseLost:
            log.info("the lease %s went to another host", lease.token)
        except AzureError as error:
            log.warning("the lease %s was not given back: %s", lease.token, first_line(error))

    async def _read_once(self, lease: FeedLease) -> FeedLease:
        options = self._options
        page = await read_page(self._monitored, lease, options.page_items, options.start)
        if page.documents:
            return await self._hand_over(lease, page)
        if lease.continuation is None and page.continuation:
            return await self._leases.write(lease.advanced_to(page.continuation))
        await self._sleep(options.poll_delay)
        if (datetime.now(UTC) - lease.renewed).total_seconds() >= options.renew_interval:
            return await self._leases.write(lease.held_by(self._host))
        return lease

    async def _hand_over(self, lease: FeedLease, page: FeedPage) -> FeedLease:
        """Hand a page over and advance; raises FeedLeaseLost when the lease was taken meanwhile."""
        handling = asyncio.create_task(self._handler(page.documents))
        try:
            while not (await asyncio.wait([handling], timeout=self._options.renew_interval))[0]:
                try:
                    lease = await self._leases.write(lease.held_by(self._host))
                except AzureError as error:  # the account does not answer: go on under the old one
                    log.warning("the lease %s was not renewed: %s", lease.token, first_line(error))
        finally:
            handling.cancel()
            await asyncio.wait([handling])
        if not handling.result():
            return lease
        return await self._leases.write(lease.advanced_to(page.continuation or ""))

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but not longer than until a stop."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return


async def read_page(
    container: ContainerProxy, lease: FeedLease, page_items: int, start: FeedStart
) -> FeedPage:
    """Read the next page behind a lease; it may be empty.

    `start` counts only while the lease has no continuation. Errors are the client's.
    """
    headers: list[Mapping[str, Any]] = []
    first: dict[str, Any] = {"feed_range": dict(lease.feed_range), "start_time": start}
    feed = container.query_items_change_feed(
        max_item_count=page_items,
        response_hook=lambda answered, _: headers.append(answered),
        **({"continuation": lease.continuation} if lease.continuation else first),
    )
    documents: list[dict[str, Any]] = []
    async for page in feed.by_page():
        documents = [document async for document in page]
        break
    # The client writes its composite token over the etag in the headers of the answer, after it
    # has shown them to the hook; it gives an empty page's token nowhere else.
    token = headers[-1].get("etag") if headers else None
    return FeedPage(documents, str(token) if token else None)


def first_line(error: Exception) -> str:
    """The beginning of a client error; the rest repeats the request."""
    return (str(error) or type(error).__name__).splitlines()[0]
