"""Two regions in memory in which messages are delivered until somebody settles them."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Any

from shared.adapters.memory import MemoryJournal
from shared.adapters.memory_bus import MemoryBus
from shared.adapters.memory_store import VirtualClock
from shared.domain.errors import LockstepError
from shared.domain.handler import Context, Handler, Handlers, Kind
from shared.domain.journal import Owner
from shared.domain.message import Message
from shared.engine.build import Services, build
from shared.engine.consume.claim import RENEWALS_PER_LEASE
from shared.engine.dispatch.deliver import Delivery
from shared.engine.publish.publish import Producer
from shared.engine.worker import Policy, WaitLimits
from shared.testkit.found import Found
from shared.testkit.given import described
from shared.testkit.strikes import Killed, Strike

REGIONS = ("east", "west")
OUTPUT_QUEUE = "out"
ERROR_QUEUE = "errors"
POLICY = Policy(
    output_queue=OUTPUT_QUEUE,
    error_queue=ERROR_QUEUE,
    waits=WaitLimits(gap_seconds=0.0),
    lease_seconds=30.0,
)
DELIVERIES_MAX = 10
SWEEPS = 3
# As long as claims wait for their next renewal.
LONG_SECONDS = POLICY.lease_seconds / RENEWALS_PER_LEASE
MOMENT_SECONDS = 0.005


class StageClock(VirtualClock):
    """Virtual time, in which a long sleep takes a moment of the real one.

    Otherwise claims would be renewed without end while a handler that calls the outside waits.
    """

    async def sleep(self, seconds: float) -> None:
        """Let this much virtual time pass."""
        if seconds >= LONG_SECONDS:
            await asyncio.sleep(MOMENT_SECONDS)
        await super().sleep(seconds)


def in_this_thread(handler: Handler) -> Handler:
    """The handler, run where it can be struck at the same calls each time."""
    if handler.kind in (Kind.PURE, Kind.DETERMINISTIC) or iscoroutinefunction(handler.handle):
        return handler

    async def handle(state: Any, body: Any, context: Context) -> Any:
        return handler.handle(state, body, context)

    return replace(handler, handle=handle)


class Stage:
    """A journal, a bus, a clock, and one worker in each region at a time."""

    def __init__(self, handlers: Handlers, strike: Strike | None = None) -> None:
        self.handlers = Handlers({t: in_this_thread(h) for t, h in handlers.by_type.items()})
        self.strike = strike or Strike()
        self.clock = StageClock()
        self.journal = MemoryJournal(self.clock, self.strike)
        self.bus = MemoryBus(self.clock, self.strike)
        self.started = 0
        self.workers = {region: self.worker(region) for region in REGIONS}

    def worker(self, region: str) -> Services:
        """A new process in a region, which remembers nothing."""
        self.started += 1
        delivery = Delivery(self.bus, self.clock, REGIONS, secondary_delay_seconds=0.0)
        return build(
            self.journal,
            delivery,
            self.clock,
            Owner(region, f"{region}-{self.started}"),
            self.handlers,
            Producer(self.journal, delivery, "in"),
            POLICY,
        )

    async def deliver(self, region: str, messages: Sequence[Message]) -> bool:
        """Deliver messages of one session together; whether the region's worker settled them."""
        worker = self.workers[region]
        try:
            if len(messages) == 1:
                await worker.consumer.consume(messages[0])
            else:
                await worker.batches.consume(messages)
        except LockstepError:
            return False
        except Killed:
            self.workers[region] = self.worker(region)
            return False
        return True

    async def settle(self, region: str, *messages: Message) -> None:
        """Deliver again, to one region and the other in turn, until a worker settles."""
        there = REGIONS.index(region)
        for tried in range(DELIVERIES_MAX):
            if await self.deliver(REGIONS[(there + tried) % len(REGIONS)], messages):
                return
            self.clock.seconds += POLICY.lag_seconds
        raise Found(f"{described(messages[0])} is never settled")

    async def rest(self) -> None:
        """Let the sweeps of both regions find what is left, as they do while nothing arrives."""
        for _ in range(SWEEPS):
            for region in REGIONS:
                self.clock.seconds += POLICY.lease_seconds + POLICY.lag_seconds
                with suppress(LockstepError, Killed):
                    await self.worker(region).recovery.sweep()
        self.strike.is_over = True
