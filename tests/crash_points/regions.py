"""The two regions a piece of work runs in: how it is tried until it is done, and its result."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import product

from proof.simulation.world.recorder import state_of
from shared.domain.errors import LockstepError
from shared.domain.handler import Context, Handled, Handlers, Kind
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.domain.steps import NotDone, OnUnknown
from shared.domain.steps import ask as ask_outside
from shared.engine.build import Services
from shared.engine.worker import WaitLimits
from shared.storage.journal import REGIONS_SESSION
from shared.testkit.injected_faults import FaultPlan
from shared.testkit.memory_store import VirtualClock
from shared.testkit.regions import REGIONS, TwoRegions
from tests.business import LEASE_OVER, Outside, business
from tests.sized_outputs import Sizes, Written, letters
from tests.world import DELAY_SECONDS, POLICY, Account, Amount, billed

ROUNDS_MAX = 8
# Nobody waits long for a message that is missing.
IMPATIENT = replace(POLICY, waits=WaitLimits(gap_seconds=1.0, poll_seconds=0.5))
# Two more deaths than usual do not make a message a fault.
ATTEMPTS = 5
# So often others have a turn while the outside is called: a claim is renewed meanwhile.
TURNS_OUTSIDE = 3

questions = Handlers()


@questions.register("account.ask", state=Account, body=Amount)
def ask(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Book an amount and answer with all of them."""
    booked = Account(amounts=[*account.amounts, body.amount])
    return Handled(booked, answer=booked)


@questions.register("account.close", state=Account, body=Amount)
def close(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Book the last amount of an account."""
    return Handled(Account(amounts=[*account.amounts, body.amount]), ends=True)


@questions.register("write.outside", state=Written, body=Sizes, kind=Kind.EFFECTFUL)
async def write_outside(written: Written, body: Sizes, context: Context) -> Handled[Written]:
    """Write letters under a claim."""
    return letters(written, body, context)


def trade(outside: Outside) -> Handlers:
    """A handler that pays in steps, and asks for what it does not know."""
    handlers = Handlers()

    async def find(*, key: str) -> str:
        if key not in dict(outside.asked):
            raise NotDone(f"nothing is known of {key}")
        return key

    async def pay(amount: int, size: int, *, key: str) -> str:
        await outside.pay(key, amount)
        return key.ljust(size)

    @handlers.register("account.trade", state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def trade(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Pay twice, book the amount and send a receipt."""
        # The first result lies beside the claim.
        first = await context.step("first", pay, body.amount, 5_000, on_unknown=ask_outside(find))
        second = await context.step("second", pay, 7, 0, on_unknown=OnUnknown.REPEAT)
        return billed(account, body, first.strip() + second, context)

    return handlers


async def let_others_run() -> None:
    for _ in range(TURNS_OUTSIDE):
        await asyncio.sleep(0)


class BusinessRegions(TwoRegions):
    """Two regions with all handlers of the tests, in which calls go wrong."""

    def __init__(self, faults: FaultPlan) -> None:
        self.outside = Outside(before=let_others_run)
        joined = Handlers.joined([business(self.outside), trade(self.outside), questions])
        patient = {name: replace(h, attempts=ATTEMPTS) for name, h in joined.by_type.items()}
        super().__init__(Handlers(patient), faults, IMPATIENT, DELAY_SECONDS, VirtualClock())

    def replace_workers(self, killed: str) -> None:
        """New workers go on in both regions, so that nobody remembers anything."""
        self.workers = {region: self.new_worker(region) for region in REGIONS}

    async def insist[T](self, work: Callable[[Services], Awaitable[T]], *regions: str) -> T:
        """The first region does it; where it fails, the next does, and so on."""
        tried = regions or REGIONS
        for attempt in range(ROUNDS_MAX):
            try:
                return await self.attempt(tried[attempt % len(tried)], work)
            except LockstepError:
                self.clock.seconds += LEASE_OVER
        raise AssertionError("it is never done")

    async def take(self, *batches: Sequence[Message]) -> None:
        """Deliver each batch in turn, and what was not settled again, until nothing is left."""
        left = list(batches)
        for attempt in range(ROUNDS_MAX):
            region = REGIONS[attempt % 2]
            left = [batch for batch in left if not await self.deliver(region, batch)]
            if not left:
                return
            self.clock.seconds += LEASE_OVER
        raise AssertionError(f"{left} is never settled")

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """No call goes wrong."""
        self.faults.is_over = True
        yield
        self.faults.is_over = False

    @contextmanager
    def without_west(self) -> Iterator[None]:
        """One region's namespace is unavailable."""
        self.bus.unavailable = {"west"}
        yield
        self.bus.unavailable = set()

    async def finish(self) -> None:
        """Both regions sweep, in which calls may go wrong, and once more, in which none does."""
        for is_over, region in product((False, True), REGIONS):
            self.faults.is_over = is_over
            if is_over:
                # What goes wrong by its name may not have come to pass before.
                self.faults.planned.clear()
            self.clock.seconds += LEASE_OVER
            with suppress(LockstepError):
                await self.attempt(region, lambda worker: worker.recovery.sweep())

    def sent(self, region: str, queue: str) -> list[tuple[str, bytes]]:
        """Ids and bodies of a queue, each once; those one sender numbered in order of arrival."""
        copies = self.bus.messages(region, queue)
        copies.sort(key=lambda copy: copy.number.group if copy.number else copy.id)
        return list(dict.fromkeys((copy.id, copy.body) for copy in copies))

    async def end(self) -> object:
        """The result when everything is settled that both regions find."""
        await self.finish()
        return await self.result()

    async def result(self) -> object:
        """Everything that must be the same whatever went wrong."""
        self.faults.is_over = True
        queues = {at: self.sent(*at) for at in product(REGIONS, ("out", "errors"))}
        # What producers send has an order by its numbers only.
        queues |= {(region, "in"): sorted(self.sent(region, "in")) for region in REGIONS}
        # Whether the list of regions was stored already is no matter of the messages.
        sessions = sorted(self.journal.partitions.keys() - {REGIONS_SESSION})
        journal = {s: self.session_result(s) for s in sessions}
        for session in self.journal.partitions:
            assert await self.journal.pending(session, REGIONS) == []
            assert await self.journal.blocked(session) == []
        return queues, journal, self.outside.keys

    def session_result(self, session: str) -> object:
        """What ended how, in order, and the state; nothing may be claimed or parked any more."""
        for document in self.journal.store.flagged(session):
            assert not {"claimed", "waiting"} & {*document}, document
        documents = self.journal.partitions[session].values()
        entries = sorted((d for d in documents if d["kind"] == "entry"), key=lambda d: d["id"])
        ends = [
            (cover["id"], entry["status"])
            for entry in entries
            if entry["status"] != Status.PARKED
            for cover in entry["identities"]
        ]
        return ends, state_of(self.journal, session)
