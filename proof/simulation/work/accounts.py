"""A small business to simulate: accounts that book amounts, in every kind of handler."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from pydantic import BaseModel

from proof.simulation.work.account_workload import GROUPS, is_from_long_ago
from proof.simulation.world.clients import RETRIES
from proof.simulation.world.host import QUEUE
from proof.simulation.world.recorder import Violation, last_state
from proof.simulation.world.workload import Workload
from proof.simulation.world.world import World
from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault, Output
from shared.domain.journal import ARRIVALS
from shared.domain.message import HERE_PREFIX, OUTPUTS_PREFIX, Message
from shared.engine.consume.park import ENDED

# Longer than a lease now and then, so that claims are renewed.
EFFECT_SECONDS = 9.0
# Added to forwarded amounts, so that they differ from those that were sent.
FORWARDED = 10_000
# Over what a queue takes, and over what an entry keeps when limits are small.
BOAST_CHARACTERS = 2_000
LETTER_CHARACTERS = 400


class Amount(BaseModel):
    """An amount that comes to an account; `to` is the account that it is forwarded to."""

    amount: int
    to: str | None = None
    is_wrong: bool = False


class Account(BaseModel):
    """The memory of an account: every amount, in the order in which it was applied."""

    amounts: list[int] = []


class Receipt(BaseModel):
    total: int
    receipt: str
    lucky_number: int
    text: str = ""


@dataclass
class ExternalSystem:
    """A system that handlers call: the amounts that came with each key, and keys refused once."""

    calls: list[tuple[str, int]] = field(default_factory=list)
    refused_once: set[str] = field(default_factory=set)

    async def pay(self, key: str, amount: int, *, fails_first: bool) -> None:
        if fails_first and key not in self.refused_once:
            self.refused_once.add(key)
            raise ConnectionError("the external system is busy")
        self.calls.append((key, amount))


def booked(account: Account, body: Amount) -> Account:
    return Account(amounts=[*account.amounts, body.amount])


def receipt(account: Account, context: Context, text: str = "") -> Output:
    """Make a receipt for everything booked so far, the same in every run of the handler."""
    total = sum(account.amounts)
    lucky = context.random.randrange(1_000_000)
    body = Receipt(total=total, receipt=context.new_id(), lucky_number=lucky, text=text)
    return Output("account.receipt", body)


pure_handlers = Handlers()


@pure_handlers.register("account.add", state=Account, body=Amount)
def add(account: Account, body: Amount, _: Context) -> Account:
    return booked(account, body)


@pure_handlers.register("account.bill", state=Account, body=Amount)
def bill(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount and send a receipt, which is kept with the entry."""
    after = booked(account, body)
    return Handled(after, (receipt(after, context),))


@pure_handlers.register("account.state", state=Account, body=Amount, kind=Kind.DETERMINISTIC)
def state(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount and send two receipts, which are made again when they are needed."""
    after = booked(account, body)
    price = context.captured("price", lambda: len(account.amounts))
    return Handled(after, (receipt(after, context, f"{price}"), receipt(after, context)))


@pure_handlers.register("account.forward", state=Account, body=Amount)
def forward(account: Account, body: Amount, context: Context) -> Handled[Account]:
    after = booked(account, body)
    there = Output("account.bill", Amount(amount=body.amount + FORWARDED), body.to)
    return Handled(after, (there, receipt(after, context)))


@pure_handlers.register("account.letter", state=Account, body=Amount)
def letter(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount and send more than an entry keeps where limits are small."""
    after = booked(account, body)
    text = "l" * LETTER_CHARACTERS
    return Handled(after, tuple(receipt(after, context, text) for _ in range(3)))


@pure_handlers.register("account.close", state=Account, body=Amount)
def close(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book the last amount of an account, and send a receipt."""
    after = booked(account, body)
    return Handled(after, (receipt(after, context),), ends=True)


@pure_handlers.register("account.boast", state=Account, body=Amount)
def boast(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book an amount and send what no queue takes between two receipts."""
    after = booked(account, body)
    texts = ("", "b" * BOAST_CHARACTERS, "")
    return Handled(after, tuple(receipt(after, context, text) for text in texts))


@pure_handlers.register("account.hint", state=Account, body=Amount, on_fault=OnFault.SKIP)
def hint(_: Account, __: Amount, ___: Context) -> Account:
    raise ArithmeticError("hints are not taken")


@pure_handlers.register("account.burn", state=Account, body=Amount)
def burn(account: Account, body: Amount, _: Context) -> Account:
    """Fail until a person corrects the message."""
    if body.is_wrong:
        raise ArithmeticError("this is wrong")
    return booked(account, body)


def business(external: ExternalSystem) -> Handlers:
    handlers = Handlers()

    @handlers.register("account.wire", state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def wire(account: Account, body: Amount, context: Context) -> Handled[Account]:
        key = context.new_id()
        await asyncio.sleep(context.random.random() ** 2 * EFFECT_SECONDS)
        await external.pay(key, body.amount, fails_first=context.random.random() < 0.2)
        after = booked(account, body)
        return Handled(after, (receipt(after, context),))

    @handlers.register("account.notify", body=Amount, kind=Kind.IDEMPOTENT)
    async def notify(state: BaseModel, body: Amount, context: Context) -> Handled[BaseModel]:
        """Notify an external system, which may happen twice."""
        await external.pay(context.new_id(), body.amount, fails_first=False)
        return Handled(state, (Output("account.notified", body, ordered=False),))

    return Handlers.joined([pure_handlers, handlers])


def corrected(message: Message) -> bytes | None:
    """Return what the operator makes of a failed message; only `account.burn` can be corrected."""
    if message.type != "account.burn":
        return None
    body = Amount.model_validate_json(message.body)
    return body.model_copy(update={"is_wrong": False}).model_dump_json().encode()


# What has no effect on an account, whatever happens.
NEVER_BOOKED = frozenset({"account.hint", "account.unknown", "account.notify"})


def account_violations(
    world: World, load: Workload, external: ExternalSystem
) -> Iterator[Violation]:
    journal = world.journal
    booked = {s: list(last_state(journal, s).get("amounts", [])) for s in journal.store.entries}
    yield from check_ended(world)
    for session, amounts in booked.items():
        if len(set(amounts)) != len(amounts):
            yield Violation("P2", f"{session}: an effect twice in {amounts}")
    yield from check_sent(world, load, booked)
    yield from check_forwarded(world, booked)
    yield from check_external_system(world, external, booked)


def check_ended(world: World) -> Iterator[Violation]:
    """Check that nothing is booked after the end of an account, and that nothing is left of it."""
    for session, entries in world.journal.store.entries.items():
        ended = [entry for _, entry in sorted(entries.items()) if entry.get("ended")]
        for entry in ended[1:]:
            if entry["status"] == "completed" and entry["identities"]:
                yield Violation("P9", f"{session}/{entry['id']}: booked after the end")
        own = {f"{prefix}{session}" for prefix in (HERE_PREFIX, OUTPUTS_PREFIX)} | {ARRIVALS}
        stored = world.journal.partitions[session].values()
        asks = any(document.get("faulted") for document in stored)
        goes_on = any({*e["cursors"]} - own - {*GROUPS} or e.get("evicted") for e in ended)
        is_kept = any(document["kind"] == "entry" for document in stored)
        if ended and world.variant.small_limits and is_kept and not (asks or goes_on):
            yield Violation("P8", f"{session}: has ended, and is left over")


def refused_amounts(world: World, session: str) -> set[int]:
    """Return the amounts that came for an account after its end, and were refused by name."""
    entries = world.journal.store.entries.get(session, {}).values()
    refused = [entry for entry in entries if entry.get("reason") == ENDED]
    return {json.loads(entry["message"]["body"])["amount"] for entry in refused}


def check_sent(world: World, load: Workload, booked: dict[str, list[int]]) -> Iterator[Violation]:
    """Check that what is safe is booked and nothing else, each producer's amounts in order."""
    safe = world.senders.safe
    contested = {message.id for series in load.series for message in series.messages}
    contested |= {message.id for message in load.conflicting}
    for message in safe:
        amount = amount_in(message)
        is_booked = amount in booked.get(message.session, ())
        if message.type in NEVER_BOOKED or is_from_long_ago(message):
            if is_booked:
                yield Violation("P9", f"{message.session}: {message.type} booked {amount}")
        elif is_booked and amount in refused_amounts(world, message.session):
            yield Violation("P9", f"{message.session}: {amount} was refused and booked")
        elif (
            not is_booked
            and message.id not in contested
            and amount not in refused_amounts(world, message.session)
        ):
            # The operator skips what fails for good, unless it can be corrected.
            looks = world.operator.decisions[message.session, message.id]
            if looks <= RETRIES or message.type == "account.burn":
                yield Violation("P1", f"{message.session}: {amount} is missing")
    for line in load.publish_plans:
        amounts = booked.get(line.session, [])
        sent = [Amount.model_validate_json(d.body).amount for o in line.operations for d in o]
        places = [amounts.index(amount) for amount in sent if amount in amounts]
        if places != sorted(places):
            yield Violation("P3", f"{line.session} {line.group}: {sent} came as {amounts}")


def amount_in(message: Message) -> int:
    return Amount.model_validate_json(message.body).amount


def check_forwarded(world: World, booked: dict[str, list[int]]) -> Iterator[Violation]:
    """Check that another account books what one forwards, and nothing else."""
    came = {
        (q.message.session, amount_in(q.message))
        for namespace in world.namespaces.values()
        for q in namespace.accepted[QUEUE]
        if q.message.type == "account.forward"
    }
    forwarded = {
        amount + FORWARDED for session, amount in came if amount in booked.get(session, ())
    }
    arrived = {amount for amounts in booked.values() for amount in amounts if amount > FORWARDED}
    for session in booked:
        arrived |= {amount for amount in refused_amounts(world, session) if amount > FORWARDED}
    if forwarded != arrived:
        yield Violation("P1", f"{sorted(forwarded)} were forwarded, {sorted(arrived)} booked")


def check_external_system(
    world: World, external: ExternalSystem, booked: dict[str, list[int]]
) -> Iterator[Violation]:
    """Check that the external system was called, and whenever a key came again, with its amount."""
    amounts = dict(external.calls)
    for key, amount in external.calls:
        if amounts[key] != amount:
            yield Violation("P4", f"{key} came with {amount} and {amounts[key]}")
    called = set(amounts.values())
    for message in world.senders.safe:
        amount = amount_in(message)
        is_notification = message.type == "account.notify"
        is_paid = message.type == "account.wire" and amount in booked.get(message.session, ())
        if (is_notification or is_paid) and amount not in called:
            what = f"the external system was never called with {amount}"
            yield Violation("P1", f"{message.session}: {what}")
