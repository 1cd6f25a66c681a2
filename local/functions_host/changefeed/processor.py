"""The change feed processor: takes leases, reads their ranges, and hands changes over.

A lease advances after its changes were handed over, however that ended, unless the hand-over was
stopped. It is renewed meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from azure.core.exceptions import AzureError
from azure.cosmos.aio import ContainerProxy

from local.functions_host.changefeed.balance import leases_to_take
from local.functions_host.changefeed.feed import Page, Start, read_page
from local.functions_host.changefeed.lease import Lease
from local.functions_host.changefeed.lease_store import LeaseLost, LeaseStore

log = logging.getLogger(__name__)

type ChangeHandler = Callable[[list[dict[str, Any]]], Coroutine[Any, Any, bool]]

BROKEN_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class FeedOptions:
    """The options of a binding, durations in seconds."""

    poll_delay: float
    acquire_interval: float
    renew_interval: float
    expiration_interval: float
    page_items: int
    start: Start


class Processor:
    """Reads a container's feed as one of the hosts that share the leases."""

    def __init__(
        self,
        host: str,
        monitored: ContainerProxy,
        leases: LeaseStore,
        options: FeedOptions,
        handler: ChangeHandler,
    ) -> None:
        self._host = host
        self._monitored = monitored
        self._leases = leases
        self._options = options
        self._handler = handler
        self._followers: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = asyncio.Event()
        self._drain_seconds = 0.0

    async def run(self) -> None:
        """Take leases and follow them until told to stop, then give them back.

        Errors of the client end it while it prepares; later ones are tried on.
        """
        feed_ranges = [feed_range async for feed_range in self._monitored.read_feed_ranges()]
        ids = await self._leases.ensure(feed_ranges)
        while not self._is_stopping.is_set():
            try:
                for lease in await self._leases_to_take(ids):
                    await self._take(lease)
            except AzureError as error:
                log.warning("the leases cannot be read: %s", first_line(error))
            await self._pause(self._options.acquire_interval)
        await self._drain()

    def stop(self, drain_seconds: float) -> None:
        """Tell `run` to end; a hand-over in progress has until the limit."""
        self._drain_seconds = drain_seconds
        self._is_stopping.set()

    async def _drain(self) -> None:
        followers = list(self._followers.values())
        if not followers:
            return
        _, late = await asyncio.wait(followers, timeout=self._drain_seconds)
        for follower in late:
            follower.cancel()
        await asyncio.gather(*followers, return_exceptions=True)

    async def _leases_to_take(self, ids: list[str]) -> list[Lease]:
        found = [await self._leases.find(lease_id) for lease_id in ids]
        known = [lease for lease in found if lease is not None]
        seconds = self._options.expiration_interval
        wanted = leases_to_take(known, self._host, datetime.now(UTC), seconds)
        return [lease for lease in wanted if lease.id not in self._followers]

    async def _take(self, lease: Lease) -> None:
        try:
            held = await self._leases.write(lease.held_by(self._host))
        except LeaseLost:
            return  # another host was faster
        follower = asyncio.create_task(self._follow(held))
        self._followers[lease.id] = follower
        follower.add_done_callback(lambda _: self._followers.pop(lease.id, None))

    async def _follow(self, lease: Lease) -> None:
        try:
            while not self._is_stopping.is_set():
                try:
                    lease = await self._step(lease)
                except AzureError as error:
                    log.warning("the change feed cannot be read: %s", first_line(error))
                    await self._pause(BROKEN_PAUSE_SECONDS)
            await self._leases.write(lease.held_by(None))
        except LeaseLost:
            log.info("the lease %s went to another host", lease.token)
        except AzureError as error:
            log.warning("the lease %s was not given back: %s", lease.token, first_line(error))

    async def _step(self, lease: Lease) -> Lease:
        """Read a page; hand it over and advance, or wait and renew."""
        options = self._options
        page = await read_page(self._monitored, lease, options.page_items, options.start)
        if page.documents:
            return await self._hand_over(lease, page)
        if lease.continuation is None and page.continuation:
            return await self._leases.write(lease.read_up_to(page.continuation))
        await self._pause(options.poll_delay)
        if (datetime.now(UTC) - lease.renewed).total_seconds() >= options.renew_interval:
            return await self._leases.write(lease.held_by(self._host))
        return lease

    async def _hand_over(self, lease: Lease, page: Page) -> Lease:
        """Hand a page over and advance; raises LeaseLost when the lease went meanwhile."""
        handing = asyncio.create_task(self._handler(page.documents))
        try:
            while not (await asyncio.wait([handing], timeout=self._options.renew_interval))[0]:
                lease = await self._renewed(lease)
        finally:
            handing.cancel()
            await asyncio.wait([handing])
        if not handing.result():
            return lease
        return await self._leases.write(lease.read_up_to(page.continuation or ""))

    async def _renewed(self, lease: Lease) -> Lease:
        """The lease renewed, or as it was if the account does not answer."""
        try:
            return await self._leases.write(lease.held_by(self._host))
        except AzureError as error:
            log.warning("the lease %s was not renewed: %s", lease.token, first_line(error))
            return lease

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._is_stopping.wait()
        except TimeoutError:
            return


def first_line(error: Exception) -> str:
    """The beginning of a client error; the rest repeats the request."""
    return (str(error) or type(error).__name__).splitlines()[0]
