"""A small business to simulate: accounts that call an exchange in steps, one for each policy."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from proof.simulation.work.account_workload import AccountMessages
from proof.simulation.work.accounts import Account, Amount, booked, receipt
from proof.simulation.world.recorder import Violation
from proof.simulation.world.world import World
from shared.domain.handler import Context, Handled, Handlers, Kind
from shared.domain.journal import Status
from shared.domain.message import derive_id
from shared.domain.producer import Draft
from shared.domain.steps import AskOutside, NotDone, OnUnknown, ask

TRADE, BASKET = "account.trade", "account.basket"
# How often a message is a trade or a basket.
TRADES = 0.5
# What the exchange says of each second order is too much for a claim.
LARGE = 5_000
# A whole trade is longer than a lease now and then.
CALL_SECONDS = 4.0
# How often the exchange refuses at first, and how often its answer is lost, by step.
REFUSALS, LOST_ANSWERS = 0.15, 0.15


@dataclass
class Exchange:
    """A system that gives each key one receipt, and is asked for it by those who do not know it.

    `orders` counts how often an order with a key took effect or was recognised. `allowed` counts
    how often that may be, beyond once: because a look-up, or a person, found nothing.
    """

    receipts: dict[str, str] = field(default_factory=dict)
    orders: Counter[str] = field(default_factory=Counter)
    allowed: Counter[str] = field(default_factory=Counter)
    under_way: Counter[str] = field(default_factory=Counter)
    begun: Counter[str] = field(default_factory=Counter)

    async def order(self, seconds: float, chance: float, *, key: str) -> str:
        """Give a receipt. By chance the first try is refused, or its answer is lost."""
        self.begun[key] += 1
        self.under_way[key] += 1
        is_first = self.begun[key] == 1
        try:
            await asyncio.sleep(seconds / 2)
            if is_first and chance < REFUSALS:
                raise NotDone("the exchange is busy")
            self.orders[key] += 1
            self.receipts.setdefault(key, f"{key[:8]}/{len(self.receipts)}")
            await asyncio.sleep(seconds / 2)
            if is_first and chance > 1 - LOST_ANSWERS:
                raise ConnectionError("the exchange was cut off")
        finally:
            self.under_way[key] -= 1
        return self.tell(key)

    def tell(self, key: str) -> str:
        """Return all that it says of an order: its receipt, and spaces."""
        return self.receipts[key].ljust(LARGE if key[-1] in "02468ace" else 0)

    async def look_up(self, *, key: str) -> str:
        """Return the receipt of a key; none is there before its order has taken effect."""
        await asyncio.sleep(0)
        if self.look(key) is None:
            raise NotDone(f"no order {key}")
        return self.tell(key)

    def look(self, key: str) -> str | None:
        """Return what a person finds, who may have it done again where that is nothing."""
        if key not in self.receipts:
            self.allowed[key] += 1
        return self.receipts.get(key)

    def is_settled(self, key: str) -> bool:
        """Say whether nothing of a key is on its way, so that a person can tell."""
        return self.under_way[key] == 0


def business(exchange: Exchange) -> Handlers:
    handlers = Handlers()
    policies: dict[str, OnUnknown | AskOutside] = {
        "reserve": OnUnknown.REPEAT,
        "charge": ask(exchange.look_up),
        "ship": OnUnknown.HALT,
    }

    @handlers.register(TRADE, state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def trade(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Do one step after another."""
        receipts = []
        for name, policy in policies.items():
            seconds, chance = context.random.random() ** 2 * CALL_SECONDS, context.random.random()
            receipts.append(
                await context.step(name, exchange.order, seconds, chance, on_unknown=policy)
            )
        return traded(account, body, context, receipts)

    @handlers.register(BASKET, state=Account, body=Amount, kind=Kind.EFFECTFUL)
    async def basket(account: Account, body: Amount, context: Context) -> Handled[Account]:
        """Do all steps side by side."""
        steps = []
        for name, policy in policies.items():
            seconds, chance = context.random.random() ** 2 * CALL_SECONDS, context.random.random()
            steps.append(context.step(name, exchange.order, seconds, chance, on_unknown=policy))
        return traded(account, body, context, await asyncio.gather(*steps))

    return handlers


def traded(
    account: Account, body: Amount, context: Context, receipts: list[str]
) -> Handled[Account]:
    after = booked(account, body)
    # Whatever was given, so that a wrong one is told and seen.
    text = " ".join(str(one).strip() for one in receipts)
    return Handled(after, (receipt(after, context, text),))


class TradeMessages(AccountMessages):
    """Draws messages of which about half call the exchange."""

    def draft(self, session: str, group: str) -> Draft:
        if self.draw.random() >= TRADES:
            return super().draft(session, group)
        kind = self.draw.choice((TRADE, BASKET))
        body = self.body(kind)
        return Draft(derive_id(session, group, str(self.amount)), kind, body)


def trade_violations(world: World, exchange: Exchange) -> Iterator[Violation]:
    """Check that no step acted oftener than its policy says, and that each result is its own."""
    for session, entries in world.journal.store.entries.items():
        newest = world.journal.newest(session)
        if newest and newest.status is not Status.WORKING and newest.halt is None:
            left = world.journal.store.partitions[session].items()
            for document_id in (one for one, document in left if "result" in document):
                yield Violation("P8", f"{session}: {document_id} is left")
        for _, entry in sorted(entries.items()):
            where = f"{session}/{entry['id']}"
            for step in entry.get("steps", ()):
                key, name = step["key"], step["name"]
                extra = exchange.orders[key] - 1 - exchange.allowed[key]
                if name != "reserve" and extra > 0:
                    yield Violation("P2", f"{where}: step {name} acted {extra} times too often")
                if step["status"] == "done" and not exchange.orders[key]:
                    yield Violation("P5", f"{where}: step {name} is done and never acted")
                if entry["status"] == "completed" and step["status"] == "begun":
                    yield Violation("P9", f"{where}: step {name} is unknown and nobody is asked")
            yield from check_receipts(where, entry, exchange)


def check_receipts(where: str, entry: dict[str, object], exchange: Exchange) -> Iterator[Violation]:
    """Check that a trade that is done tells the receipts of its own three steps."""
    is_trade = any(one["type"] in (TRADE, BASKET) for one in entry["identities"])  # type: ignore[attr-defined]
    if entry["status"] != "completed" or not is_trade:
        return
    steps = {step["name"]: step["key"] for step in entry.get("steps", ())}  # type: ignore[attr-defined]
    expected = [
        exchange.receipts.get(steps.get(name, "")) for name in ("reserve", "charge", "ship")
    ]
    outbox = entry.get("outbox", {})
    receipts_sent = [
        json.loads(message["body"])["text"].split()
        for batch in outbox.get("batches", ())  # type: ignore[attr-defined]
        for message in batch["messages"]
    ]
    if receipts_sent and receipts_sent != [expected]:
        yield Violation("P4", f"{where}: it sent {receipts_sent}, and its receipts are {expected}")
