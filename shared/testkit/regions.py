"""Two regions in memory, in which messages are delivered until somebody settles them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product

from shared.domain.errors import LockstepError, OutcomeUnknown
from shared.domain.handler import Handlers
from shared.domain.journal import Owner
from shared.domain.message import Message
from shared.domain.outbox import AppQueues
from shared.domain.steps import unknown_steps
from shared.engine.build import Services, build
from shared.engine.consume.claim import RENEWALS_PER_LEASE
from shared.engine.consume.consume import AGAIN
from shared.engine.consume.outcomes import Outcome
from shared.engine.dispatch.deliver import Delivery
from shared.engine.publish.publish import Producer
from shared.engine.worker import Policy, WaitLimits
from shared.testkit.called import CallLog
from shared.testkit.given import Found, in_words
from shared.testkit.injected_faults import PASSING_FAULTS, CallFault, FaultPlan, ProcessKilled
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import VirtualClock

# Two regions are enough: what goes wrong between workers of different regions goes wrong with two.
REGIONS = ("east", "west")
OUTPUT_QUEUE = "out"
ERROR_QUEUE = "errors"
QUEUES = AppQueues("in", OUTPUT_QUEUE, ERROR_QUEUE)


class EveryQueue(frozenset[str]):
    """The set of all queues: an app's settings name those it may answer to, a test has none."""

    def __contains__(self, _: object) -> bool:
        return True


POLICY = Policy(WaitLimits(gap_seconds=0.0), lease_seconds=30.0, reply_queues=EveryQueue())
DELIVERIES_MAX = 10
SWEEPS = 3
# More messages to the app itself than this are outputs that call each other.
FOLLOWED_MAX = 10_000
# As long as claims wait for their next renewal.
LONG_SECONDS = POLICY.lease_seconds / RENEWALS_PER_LEASE
MOMENT_SECONDS = 0.005


def call_faults(calls: int, begin: int = 0) -> Iterator[Mapping[int, CallFault]]:
    """Every call from the place `begin` on going wrong, in every way in which it can."""
    for place, fault in product(range(begin, calls), PASSING_FAULTS):
        yield {place: fault}


class PatientClock(VirtualClock):
    """Virtual time, in which a long sleep takes a moment of the real one.

    Otherwise claims would be renewed without end while a handler that calls the outside waits.
    """

    async def sleep(self, seconds: float) -> None:
        if seconds >= LONG_SECONDS:
            await asyncio.sleep(MOMENT_SECONDS)
        await super().sleep(seconds)


class TwoRegions:
    """A journal, a bus, a clock and a worker per region; a killed one is replaced by a new one."""

    def __init__(
        self,
        handlers: Handlers,
        faults: FaultPlan | None = None,
        policy: Policy = POLICY,
        secondary_delay_seconds: float = 0.0,
        clock: VirtualClock | None = None,
    ) -> None:
        self.calls = CallLog()
        self.handlers = Handlers({t: self.calls.watch(h) for t, h in handlers.by_type.items()})
        self.faults = faults or FaultPlan()
        self.policy = policy
        self.secondary_delay_seconds = secondary_delay_seconds
        self.clock = clock or PatientClock()
        self.journal = MemoryJournal(self.clock, self.faults)
        self.bus = MemoryBus(self.clock, self.faults)
        self.started = 0
        self.followed = dict.fromkeys(REGIONS, 0)
        self.workers = {region: self.new_worker(region) for region in REGIONS}

    def new_worker(self, region: str) -> Services:
        self.started += 1
        delivery = Delivery(self.bus, self.clock, REGIONS, self.secondary_delay_seconds, QUEUES)
        return build(
            self.journal,
            delivery,
            self.clock,
            Owner(region, f"{region}-{self.started}"),
            self.handlers,
            Producer(self.journal, delivery),
            self.policy,
            browser=self.bus,
        )

    async def attempt[T](self, region: str, work: Callable[[Services], Awaitable[T]]) -> T:
        """Let the region's worker do it. Raises LockstepError, also where the worker died."""
        try:
            return await work(self.workers[region])
        except ProcessKilled as killed:
            self.replace_workers(region)
            raise OutcomeUnknown(f"the worker of {region} died") from killed

    def replace_workers(self, killed: str) -> None:
        self.workers[killed] = self.new_worker(killed)

    async def deliver(self, region: str, messages: Sequence[Message], as_try: int = 0) -> bool:
        """Deliver messages of one session together; whether the region's worker settled them."""
        try:
            await self.attempt(region, lambda worker: consume_together(worker, messages, as_try))
        except LockstepError:
            return False
        return True

    async def settle(self, region: str, *messages: Message) -> None:
        """Deliver again until a worker settles, and then what was sent to the app itself."""
        await self.deliver_until_settled(region, *messages)
        await self.follow()

    async def follow(self) -> None:
        """Deliver what came to the app's own queues, each copy in its region, until all is done.

        What is scheduled is not: whether it comes before another message is for the test to say.
        """
        came = {region: self.bus.queues[region, QUEUES.here] for region in REGIONS}
        while waiting := [r for r in REGIONS if self.followed[r] < len(came[r])]:
            region = waiting[0]
            message = came[region][self.followed[region]].message
            self.followed[region] += 1
            if message.reminder is not None:
                continue
            if self.followed[region] > FOLLOWED_MAX:
                raise Found(f"{in_words(message)} goes on for ever: its outputs come back here")
            await self.deliver_until_settled(region, message)

    async def deliver_until_settled(self, region: str, *messages: Message) -> None:
        """Deliver again, to one region and the other in turn, until a worker settles."""
        first = REGIONS.index(region)
        for tried in range(DELIVERIES_MAX):
            as_try = AGAIN if tried else 0
            if await self.deliver(REGIONS[(first + tried) % len(REGIONS)], messages, as_try):
                return
            self.clock.seconds += self.policy.lag_seconds
        raise Found(f"{in_words(messages[0])} is never settled")

    async def finish(self) -> None:
        """Let the sweeps of both regions find what is left, as they do while nothing arrives."""
        for _ in range(SWEEPS):
            for region in REGIONS:
                self.clock.seconds += self.policy.lease_seconds + self.policy.lag_seconds
                with suppress(LockstepError, ProcessKilled):
                    await self.new_worker(region).recovery.sweep()
                    await self.decide_steps(self.new_worker(region))
                await self.follow()
        self.faults.is_over = True

    async def decide_steps(self, services: Services) -> None:
        """Say of a step in each session that a person has to decide what came of it."""
        for session in list(self.journal.partitions):
            head = await services.worker.read_head(session)
            fault = head and head.halt and await self.journal.entry(session, head.halt.at)
            if fault and (unknown := unknown_steps(fault.steps)):
                step = fault.steps[unknown[0]]
                decision = self.calls.decide(unknown[0], step, fault.position)
                await services.resolver.resolve(session, decision)


async def consume_together(
    worker: Services, messages: Sequence[Message], as_try: int = 0
) -> list[Outcome]:
    """The outcomes of messages that a host hands over at once, in their order.

    `as_try` is explained in `Consumer.consume`.
    Raises what a call raised, ProcessKilled first: a call that dies takes the others with it.
    """
    calls: list[asyncio.Task[Outcome]] = []

    async def call(message: Message, arrival: int) -> Outcome:
        try:
            return await worker.consumer.consume(message, arrival, as_try=as_try)
        except ProcessKilled:
            for other in calls:
                other.cancel()
            raise

    calls += [asyncio.create_task(call(message, n)) for n, message in enumerate(messages)]
    await asyncio.wait(calls)
    killed = [one for one in calls if one.cancelled() or isinstance(one.exception(), ProcessKilled)]
    for one in killed or calls:
        if not one.cancelled():
            one.result()
    if killed:
        raise ProcessKilled
    return [one.result() for one in calls]
