"""The world a piece of work runs in: what is insisted on there, and what can be seen of it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product

from shared.adapters.memory_store import VirtualClock
from shared.domain.errors import LockstepError, OutcomeUnknown
from shared.domain.handler import Context, Handled, Handlers
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.worker import Policy, WaitLimits
from shared.testkit.strikes import Killed
from tests import letters
from tests.business import LEASE_OVER, Outside, business
from tests.crash_points.strikes import Strikes
from tests.crashes import sent
from tests.world import POLICY, REGIONS, Account, Amount, World

ROUNDS_MAX = 8
# Nobody waits long for a message that is missing.
HASTY = replace(POLICY, waits=WaitLimits(gap_seconds=1.0, poll_seconds=0.5))
# Two more deaths than usual do not make a message a fault.
ATTEMPTS = 5
# So often others have a turn while the outside is asked: a claim is renewed meanwhile.
TURNS_OUTSIDE = 3

questions = Handlers()


@questions.register("account.ask", state=Account, body=Amount)
def ask(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Book an amount and answer with all of them."""
    booked = Account(amounts=[*account.amounts, body.amount])
    return Handled(booked, answer=booked)


async def others_have_a_turn() -> None:
    """Take a little time."""
    for _ in range(TURNS_OUTSIDE):
        await asyncio.sleep(0)


class Ground(World):
    """Two regions whose calls suffer strikes, with the whole business."""

    def __init__(self, strikes: Strikes, policy: Policy = HASTY) -> None:
        self.strikes = strikes
        self.outside = Outside(before=others_have_a_turn)
        whole = Handlers.joined([business(self.outside), letters.handlers, questions])
        patient = {name: replace(h, attempts=ATTEMPTS) for name, h in whole.by_type.items()}
        super().__init__(VirtualClock(), policy=policy, handlers=Handlers(patient))
        self.journal.mishaps = self.bus.mishaps = strikes
        self.alive = self.new_workers()

    def new_workers(self) -> dict[str, Services]:
        """A worker for each region."""
        return {region: self.worker(region) for region in REGIONS}

    async def ask[T](self, region: str, work: Callable[[Services], Awaitable[T]]) -> T:
        """Let the region's worker do it; after a death new workers, who remember nothing, go on.

        Raises LockstepError where it was not done, or nobody lives to say so.
        """
        try:
            return await work(self.alive[region])
        except Killed as death:
            self.alive = self.new_workers()
            raise OutcomeUnknown("the worker died") from death

    async def insist[T](self, work: Callable[[Services], Awaitable[T]]) -> T:
        """The east does it; where it fails, the west does, and so on."""
        for attempt in range(ROUNDS_MAX):
            try:
                return await self.ask(REGIONS[attempt % 2], work)
            except LockstepError:
                self.clock.seconds += LEASE_OVER
        raise AssertionError("it is never done")

    async def take(self, *batches: Sequence[Message]) -> None:
        """Deliver each batch in turn, and what was not settled again, until nothing is left."""
        left = list(batches)
        for attempt in range(ROUNDS_MAX):
            region = REGIONS[attempt % 2]
            left = [batch for batch in left if not await self.is_settled(region, batch)]
            if not left:
                return
            self.clock.seconds += LEASE_OVER
        raise AssertionError(f"{left} is never settled")

    async def is_settled(self, region: str, batch: Sequence[Message]) -> bool:
        """Whether the region's worker settled the delivery."""
        try:
            if len(batch) == 1:
                await self.ask(region, lambda worker: worker.consumer.consume(batch[0]))
            else:
                await self.ask(region, lambda worker: worker.batches.consume(batch))
        except LockstepError:
            return False
        return True

    async def rest(self) -> None:
        """Both regions sweep, which may suffer strikes, and once more, which does not."""
        for is_over, region in product((False, True), REGIONS):
            self.strikes.is_over = is_over
            self.clock.seconds += LEASE_OVER
            with suppress(LockstepError):
                await self.ask(region, lambda worker: worker.recovery.sweep())

    async def seen(self) -> object:
        """Everything that must be the same whatever went wrong."""
        self.strikes.is_over = True
        queues = {at: sent(self, *at) for at in product(REGIONS, ("out", "errors"))}
        # What producers send has an order by its numbers only.
        queues |= {(region, "in"): sorted(sent(self, region, "in")) for region in REGIONS}
        journal = {session: self.ended(session) for session in sorted(self.journal.partitions)}
        assert await self.owing() == []
        return queues, journal, self.outside.keys

    def ended(self, session: str) -> object:
        """What ended how, in order, and the state; nothing may be claimed or parked any more."""
        for document in self.journal.store.flagged(session):
            assert not {"claimed", "waiting"} & {*document}, document
        entries = self.entries(session)
        ends = [
            (cover["id"], entry["status"])
            for entry in entries
            if entry["status"] != Status.PARKED
            for cover in entry["covers"]
        ]
        return ends, [entry["state"] for entry in entries if "state" in entry][-1:]
