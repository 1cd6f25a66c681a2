"""A small business to simulate: orders as sagas, over stock, accounts and shelves.

Orders are those of `functions.handlers.orders`. Other sagas have any plan there can be, and their
steps go to shelves, too, whose handlers refuse, fail and call an external system.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel

from functions.handlers import orders
from proof.simulation.world.recorder import Violation, state_of
from proof.simulation.world.world import World
from shared.domain.handler import Context, Handled, Handlers, Kind, OnFault
from shared.domain.journal import Json
from shared.domain.message import Message
from shared.domain.saga.plan import Plan, Refusal, Step, StepOutcome, key_of
from shared.domain.saga.record import SagaKinds, SagaRecord

PLACE, ANY_PLAN = "order.place", "saga.any_plan"
PUT, TAKE, SPILL, CALL = "shelf.put", "shelf.take", "shelf.spill", "shelf.call"
# Longer than a lease now and then, and than a step's time.
EFFECT_SECONDS = 7.0


class Reaction(StrEnum):
    ACCEPT = "accept"
    REFUSE = "refuse"
    FAIL = "fail"  # until the operator skips it
    FAIL_UNTIL_CORRECTED = "fail until corrected"


class Item(BaseModel):
    name: str
    reaction: Reaction = Reaction.ACCEPT


class Shelf(BaseModel):
    """The amounts that were put (+) and taken away (-), in order."""

    log: list[str] = []


def business() -> Handlers:
    handlers = Handlers()
    kinds = SagaKinds(handlers)

    @kinds.register(ANY_PLAN, body=Plan)
    def any_plan(plan: Plan, _: Context) -> Plan:
        return plan

    @handlers.register(PUT, state=Shelf, body=Item)
    def put(shelf: Shelf, item: Item, _: Context) -> Handled[Shelf]:
        return moved(shelf, item, "+")

    @handlers.register(TAKE, state=Shelf, body=Item)
    def take(shelf: Shelf, item: Item, _: Context) -> Handled[Shelf]:
        return moved(shelf, item, "-")

    @handlers.register(SPILL, state=Shelf, body=Item, on_fault=OnFault.SKIP)
    def spill(_: Shelf, item: Item, __: Context) -> Handled[Shelf]:
        raise ArithmeticError(f"{item.name} is spilt")

    @handlers.register(CALL, state=Shelf, body=Item, kind=Kind.EFFECTFUL)
    async def call(shelf: Shelf, item: Item, context: Context) -> Handled[Shelf]:
        await asyncio.sleep(context.random.random() ** 2 * EFFECT_SECONDS)
        return moved(shelf, item, "+")

    for handler in orders.handlers.by_type.values():
        if handler.message_type not in handlers.by_type:
            handlers.add(handler)
    return handlers


def moved(shelf: Shelf, item: Item, sign: str) -> Handled[Shelf]:
    match item.reaction:
        case Reaction.ACCEPT:
            return Handled(Shelf(log=[*shelf.log, f"{sign}{item.name}"]))
        case Reaction.REFUSE:
            return Handled(shelf, answer=Refusal(refused="not now"))
        case Reaction.FAIL | Reaction.FAIL_UNTIL_CORRECTED:
            raise ArithmeticError(f"{item.name} fell down")


def corrected(message: Message) -> bytes | None:
    item = json.loads(message.body)
    if item.get("reaction") != Reaction.FAIL_UNTIL_CORRECTED:
        return None
    return Item(name=item["name"]).model_dump_json().encode()


DONE_ONCE = frozenset({StepOutcome.DONE, StepOutcome.UNDONE, StepOutcome.KEPT})
STAYS = frozenset({StepOutcome.DONE, StepOutcome.KEPT})


@dataclass
class ExpectedStates:
    """The expected stock, accounts and shelves; `came` is what was delivered."""

    came: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)
    charged: Counter[str] = field(default_factory=Counter)
    shipped: Counter[str] = field(default_factory=Counter)
    reserved: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    shelved: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, step: Step, outcome: StepOutcome | None) -> None:
        session, body = step.do.session, step.do.body
        stays = outcome in STAYS
        match step.do.type:
            case "stock.reserve" if stays:
                self.gone[session] += body["quantity"]
                self.reserved[session][body["order"]] = body["quantity"]
            case "stock.ship" if stays:
                self.shipped[session] += self.reserved[session].pop(body["order"])
            case "account.charge" if outcome in DONE_ONCE:
                self.charged[session] += body["amount"]
                self.gone[session] += body["amount"] if stays else 0
            case kind if kind in (PUT, CALL) and outcome in DONE_ONCE:
                self.shelved[session][f"+{body['name']}"] += 1
                if outcome is StepOutcome.UNDONE:
                    self.shelved[session][f"-{body['name']}"] += 1

    def state_of(self, session: str) -> Json | None:
        """Return what the state of a session should be; None for sessions of another kind."""
        came, left = self.came[session], self.came[session] - self.gone[session]
        match session.partition(":")[0]:
            case "stock":
                shipped, reserved = self.shipped[session], self.reserved[session]
                return {"received": came, "left": left, "shipped": shipped, "reserved": reserved}
            case "account":
                return {"balance": left, "paid": self.charged[session]}
            case "shelf":
                return {"log": dict(self.shelved[session])}
            case _:
                return None


def order_violations(world: World) -> Iterator[Violation]:
    expected_states = ExpectedStates()
    for message in world.senders.safe:
        if message.type in ("stock.receive", "account.deposit"):
            body = world.handlers.of(message.type).body.model_validate_json(message.body)
            expected_states.came[message.session] += sum(body.model_dump().values())
    sessions = list(world.journal.store.entries)
    sagas = {key: state_of(world.journal, s) for s in sessions if (key := key_of(s)) is not None}
    for key, state in sagas.items():
        record = SagaRecord.model_validate(state)
        for step in record.plan.steps if record.plan else ():
            expected_states.add(step, record.outcomes.get(step.name))
        if record.kind == PLACE:
            yield from order_document(key, record, state_of(world.journal, f"order:{key}"))
    for session in sessions:
        expected = expected_states.state_of(session)
        found = state_of(world.journal, session)
        if expected is not None and comparable(found) != expected:
            yield Violation("P2", f"{session} is {found}, and should be {expected}")


def order_document(key: str, record: SagaRecord, order: Json) -> Iterator[Violation]:
    done = "completed" if "complete" in record.outcomes else "submitted"
    expected = {StepOutcome.UNDONE: "cancelled", StepOutcome.DONE: done}
    submitted = record.outcomes.get("submit")
    if order.get("status") not in (expected.get(submitted) if submitted else None, "new"):
        yield Violation("P5", f"order:{key} is {order}, and its saga {record.state}")


def comparable(state: Json) -> Json:
    """Return a state in which the order on a shelf does not matter."""
    return {"log": dict(Counter(state.get("log", [])))} if state.keys() <= {"log"} else state
