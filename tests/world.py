"""Two regions on the in-memory twin, with a small business to watch: a ledger of amounts."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from shared.domain.handler import OUTPUTS, Context, Handled, Handlers, OnFault, Output
from shared.domain.journal import Owner
from shared.domain.message import Message, Number, derive_id
from shared.domain.outbox import AppQueues
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services, build
from shared.engine.consume.outcomes import Outcome
from shared.engine.dispatch.deliver import Delivery
from shared.engine.publish.publish import Producer
from shared.engine.worker import Policy, WaitLimits
from shared.ports import Document, SessionNeed, Telemetry
from shared.testkit.memory import MemoryJournal
from shared.testkit.memory_bus import MemoryBus
from shared.testkit.memory_store import VirtualClock

REGIONS = ("east", "west")
DELAY_SECONDS = 15.0
LAG_SECONDS = 5.0
GAP_SECONDS = 20.0

QUEUES = AppQueues(here="in", outputs="out", errors="errors")

POLICY = Policy(
    waits=WaitLimits(gap_seconds=GAP_SECONDS, poll_seconds=0.5),
    lag_seconds=LAG_SECONDS,
)

# Nobody waits for what is missing.
IMPATIENT = replace(POLICY, waits=replace(POLICY.waits, gap_seconds=0))

# What a person decides about a halted session.
SKIP = ResolutionRequest(ResolutionAction.SKIP, "Ada", "sent by mistake")
RETRY = ResolutionRequest(ResolutionAction.RETRY, "Ada", "its cause is mended")

handlers = Handlers()


class Boast(BaseModel):
    """What nobody wants to hear."""

    text: str


class Amount(BaseModel):
    """What an account is told."""

    amount: int


class Account(BaseModel):
    """What an account remembers: every amount, in the order in which it was applied."""

    amounts: list[int] = []


class Receipt(BaseModel):
    """What an account answers."""

    total: int
    receipt: str
    lucky_number: int


def booked(account: Account, body: Amount) -> Account:
    """The account after an amount."""
    return Account(amounts=[*account.amounts, body.amount])


@handlers.register("account.add", state=Account, body=Amount)
def add(account: Account, body: Amount, _: Context) -> Account:
    """Book an amount."""
    return booked(account, body)


@handlers.register("account.burn", state=Account, body=Amount)
def burn(account: Account, body: Amount, _: Context) -> Account:
    """Fail, except for a negative amount."""
    if body.amount >= 0:
        raise ArithmeticError(f"cannot burn {body.amount}")
    return booked(account, body)


@handlers.register("account.hint", state=Account, body=Amount, on_fault=OnFault.SKIP)
def hint(_: Account, __: Amount, ___: Context) -> Account:
    """Fail, but nobody minds."""
    raise ArithmeticError("hints are not taken")


@handlers.register("account.boast", state=Account, body=Amount)
def boast(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Send more than a queue takes."""
    return Handled(
        account, (Output("account.boast", Boast(text="x" * 2**body.amount), to=OUTPUTS),)
    )


@handlers.register("account.bill", state=Account, body=Amount)
def bill(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount and send a receipt for the total."""
    return billed(account, body, context.new_id(), context)


def billed(account: Account, body: Amount, receipt: str, context: Context) -> Handled[Account]:
    """The account after an amount, and a receipt for the total."""
    after, lucky_number = booked(account, body), context.random.randrange(1_000_000)
    told = Receipt(total=sum(after.amounts), receipt=receipt, lucky_number=lucky_number)
    return Handled(after, (Output("account.receipt", told),))


def message(
    sequence: int,
    amount: int | None = None,
    *,
    session: str = "acc-7",
    kind: str = "account.add",
    group: str = "bank",
    level: int = 0,
) -> Message:
    """The n-th message of a session; its amount is n + 1 unless told otherwise."""
    value = sequence + 1 if amount is None else amount
    return Message(
        id=derive_id(group, session, str(sequence)),
        session=session,
        type=kind,
        body=f'{{"amount":{value}}}'.encode(),
        number=Number(group, level, sequence),
    )


async def take(worker: Services, *arrivals: Message) -> list[Outcome]:
    """The outcomes of messages that come one after another."""
    return [await worker.consumer.consume(arriving) for arriving in arrivals]


def in_place_of[F: Callable[..., Any]](
    owner: object, name: str, *, once: bool = False
) -> Callable[[F], F]:
    """Let a function stand in for a method, which it is given first: once, or from now on."""
    method = getattr(owner, name)

    def put(stand_in: F) -> F:
        def call(*arguments: Any, **options: Any) -> Any:
            if once:
                setattr(owner, name, method)
            return stand_in(method, *arguments, **options)

        setattr(owner, name, call)
        return stand_in

    return put


def require[T](found: T | None) -> T:
    """What has to be there."""
    assert found is not None
    return found


def sequences(messages: Iterable[Message]) -> list[int]:
    """The numbers of those that have one, in this order."""
    return [one.number.sequence for one in messages if one.number]


@dataclass
class World:
    """The store, the bus and a worker in each region."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    workers: int = 0
    policy: Policy = POLICY
    handlers: Handlers = field(default_factory=lambda: handlers)
    queues: AppQueues = QUEUES
    # By region.
    telemetry: Mapping[str, Telemetry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.journal = MemoryJournal(self.clock)
        self.bus = MemoryBus(self.clock)
        self.east = self.worker("east")
        self.west = self.worker("west")

    def worker(self, region: str = "east", policy: Policy | None = None) -> Services:
        """A new process in a region: it remembers nothing of earlier ones."""
        self.workers += 1
        return build(
            self.journal,
            self.delivery(),
            self.clock,
            Owner(region, f"{region}-{self.workers}"),
            self.handlers,
            self.producer(),
            policy or self.policy,
            telemetry=self.telemetry.get(region),
            browser=self.bus,
        )

    def producer(self) -> Producer:
        """A new sender process."""
        return Producer(self.journal, self.delivery())

    def delivery(self) -> Delivery:
        """Delivery to both regions, east preferred."""
        return Delivery(self.bus, self.clock, REGIONS, DELAY_SECONDS, self.queues)

    @contextmanager
    def without(self, *lost: str | tuple[str, str]) -> Iterator[None]:
        """Inside the block these regions, or queues of regions, take nothing."""
        self.bus.unavailable |= {*lost}
        yield
        self.bus.unavailable -= {*lost}

    async def pending(self) -> list[str]:
        """Sessions whose outputs or copies some region misses."""
        found = [
            await self.journal.sessions(SessionNeed.DELIVERY, region=region, limit=10)
            for region in REGIONS
        ]
        return sorted({session for sessions in found for session in sessions})

    def amounts(self, session: str = "acc-7") -> list[int]:
        """The effects of a session, in the order of the journal."""
        states = [e["state"]["amounts"] for e in self.entries(session) if "state" in e]
        return list(states[-1]) if states else []

    def entries(self, session: str = "acc-7") -> Sequence[Document]:
        """The session's entries as stored, in order."""
        return sorted(self.documents("entry", session), key=lambda d: d["id"])

    def documents(self, kind: str, session: str = "acc-7") -> list[Document]:
        """What is kept of a kind in a session."""
        return [d for d in self.journal.partitions[session].values() if d["kind"] == kind]

    def reports(self) -> list[dict[str, Any]]:
        """What the error queues were told: the same in both regions, in the same order."""
        east, west = (self.bus.messages(region, "errors") for region in REGIONS)
        assert east == west
        return [json.loads(report.body) for report in east]

    def outputs(self, region: str, queue: str = "out") -> list[tuple[str, bytes]]:
        """Ids and bodies of everything a region's output queue, or another, was sent, in order."""
        return [(m.id, m.body) for m in self.bus.messages(region, queue)]


async def sweep_later(world: World, *regions: str) -> None:
    """The workers of these regions sweep, or those of both, each after another lag."""
    for region in regions or REGIONS:
        world.clock.seconds += LAG_SECONDS
        await getattr(world, region).recovery.sweep()
