"""The requests for sagas, and when and where their events and cancellations come."""

import json
import random

from proof.simulation.work.orders import ANY_PLAN, CALL, PLACE, PUT, SPILL, TAKE, Item, Reaction
from proof.simulation.world.clients import CancelSaga, SagaRequest, SendEvent, StartSaga
from proof.simulation.world.cloud import REGIONS
from proof.simulation.world.workload import PublishPlan, Workload, moment
from shared.domain.message import Message, derive_id
from shared.domain.producer import Draft
from shared.domain.saga.plan import Command, Plan, Stage, Step, Wait, session_of
from shared.domain.saga.record import EVENT_TYPE

PRODUCTS = ("bolt", "nut")
CUSTOMERS = ("ada", "bob")
SHELVES = 2
BEGIN_SECONDS = 12.0
EVENT_SECONDS = 30.0
# How long after a wait is over an event comes that may arrive before the timeout is recorded.
CROSSING_SECONDS = 8.0
CANCEL_SECONDS = 30.0
BAD_REACTIONS = (Reaction.REFUSE, Reaction.FAIL, Reaction.FAIL_UNTIL_CORRECTED)
REACTIONS = (Reaction.ACCEPT,) * 12 + BAD_REACTIONS
UNDO_REACTIONS = (Reaction.ACCEPT,) * 9 + BAD_REACTIONS


class OrderGenerator:
    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.publish_plans: list[PublishPlan] = []
        self.plain: list[Message] = []
        self.saga_requests: list[SagaRequest] = []

    def generate(self) -> tuple[Workload, tuple[SagaRequest, ...]]:
        for product in PRODUCTS:
            self.supply(f"stock:{product}", "stock.receive", "quantity", 12)
        for customer in CUSTOMERS:
            self.supply(f"account:{customer}", "account.deposit", "amount", 60)
        for number in range(self.draw.choice((1, 1, 2, 2, 3))):
            self.saga(f"O-{number}")
        load = Workload(tuple(self.publish_plans), plain=tuple(self.plain))
        return load, tuple(self.saga_requests)

    def supply(self, session: str, kind: str, what: str, most: int) -> None:
        drafts = tuple(
            Draft(
                derive_id(session, "supply", str(n)),
                kind,
                json.dumps({what: self.draw.randint(most // 3, most)}).encode(),
                moment(0.0),
            )
            for n in range(self.draw.randint(1, 2))
        )
        self.publish_plans.append(PublishPlan(session, "dock", tuple((draft,) for draft in drafts)))

    def saga(self, key: str) -> None:
        if self.draw.random() < 0.4:
            kind, content = PLACE, self.order()
            seconds = float(str(content["approval_seconds"]))
            waits = [("approved", "rejected", seconds)] if seconds else []
        else:
            plan = PlanGenerator(self.draw, key).plan()
            kind, content = ANY_PLAN, plan.model_dump(mode="json", exclude_defaults=True)
            waits = [(wait.onward[0], wait.back[0], wait.seconds) for wait in plan.waits]
        at = self.draw.random() * BEGIN_SECONDS
        self.begin(at, key, kind, json.dumps(content).encode())
        for onward, back, seconds in waits:
            self.decide(key, onward, back, at + seconds)
        if self.draw.random() < 0.35:
            self.add(self.draw.random() * CANCEL_SECONDS, key, CancelSaga())

    def order(self) -> dict[str, object]:
        lines = [
            {"product": product, "quantity": self.draw.randint(1, 8)}
            for product in self.draw.sample(PRODUCTS, self.draw.randint(1, 2))
        ]
        return {
            "customer": self.draw.choice(CUSTOMERS),
            "lines": lines,
            "amount": self.draw.randint(1, 50),
            "approval_seconds": self.draw.choice((0, 0, 8, 25)),
        }

    def begin(self, at: float, key: str, kind: str, body: bytes) -> None:
        """Start it: by HTTP in one region or both, by a message, by a producer; or in several ways.

        Now and then somebody wants something else under the same key.
        """
        for _ in range(self.draw.choice((1, 1, 2, 3))):
            self.add(at + self.draw.choice((0.0, 0.0, 3.0)), key, StartSaga(kind, body))
        if kind == PLACE and self.draw.random() < 0.3:
            self.add_message(key, at, kind, body)
        if kind == PLACE and self.draw.random() < 0.2:
            draft = Draft(derive_id(key, "shop"), kind, body, moment(at))
            plan = PublishPlan(session_of(key), "shop", ((draft,),), begin_seconds=at)
            self.publish_plans.append(plan)
        if self.draw.random() < 0.1:
            other = json.dumps(self.order()).encode()
            self.add(at + self.draw.random(), key, StartSaga(PLACE, other))
        if self.draw.random() < 0.08:
            # Of a type that nobody knows: its session waits for a person.
            self.add_message(key, at, "saga.unknown", b"{}")

    def decide(self, key: str, onward: str, back: str, time_is_up: float) -> None:
        """Decide a wait: yes, no, both or nothing; once or often; early, late, or at the end."""
        said = self.draw.choice(((onward,), (onward,), (onward,), (back,), (onward, back), ()))
        for event in said:
            late = time_is_up + self.draw.random() * CROSSING_SECONDS
            at = self.draw.choice((self.draw.random() * EVENT_SECONDS, 0.0, late, late))
            for _ in range(self.draw.choice((1, 1, 2))):
                self.add(at + self.draw.random(), key, SendEvent(event))
            if self.draw.random() < 0.2:
                self.add_message(key, at, EVENT_TYPE, json.dumps({"event": event}).encode())

    def add_message(self, key: str, at: float, kind: str, body: bytes) -> None:
        name = derive_id(key, "mail", kind, body.decode())
        self.plain.append(Message(name, session_of(key), kind, body, time=moment(at)))

    def add(self, at: float, key: str, action: StartSaga | SendEvent | CancelSaga) -> None:
        self.saga_requests.append(SagaRequest(at, self.draw.choice(REGIONS), key, action))


class PlanGenerator:
    def __init__(self, draw: random.Random, key: str) -> None:
        self.draw = draw
        self.key = key
        self.steps = 0

    def plan(self) -> Plan:
        count = self.draw.choice((1, 2, 2, 3, 3))
        has_final = self.draw.random() < 0.6
        final = self.draw.randrange(max(1, count - 1)) if has_final else None
        turn = count - 1 if final is None else final
        parts: list[Stage | Wait] = []
        for place in range(count):
            if place <= turn and self.draw.random() < 0.3:
                n, seconds = len(parts), self.draw.choice((4.0, 15.0, 40.0))
                parts.append(
                    Wait(name=f"w{n}", onward=(f"yes{n}",), back=(f"no{n}",), seconds=seconds)
                )
            steps = tuple(self.step() for _ in range(self.draw.choice((1, 1, 2, 3))))
            parts.append(Stage(steps=steps, is_final=place == final))
        return Plan(parts=tuple(parts))

    def step(self) -> Step:
        self.steps += 1
        name = f"s{self.steps}"
        do, undo = self.draw.choice(
            (self.shelf_commands, self.shelf_commands, self.stock_commands, self.account_commands)
        )(name)
        return Step(
            name=name,
            do=do,
            undo=undo if self.draw.random() < 0.9 else None,
            tries=self.draw.choice((1, 1, 2, 5)),
            seconds=self.draw.choice((2.0, 10.0, 30.0)),
        )

    def shelf_commands(self, name: str) -> tuple[Command, Command]:
        session = f"shelf:{self.draw.randrange(SHELVES)}"
        kind = self.draw.choice((PUT, PUT, PUT, PUT, CALL, CALL, SPILL, "shelf.unknown"))
        item = Item(name=f"{self.key}/{name}", reaction=self.draw.choice(REACTIONS))
        back = item.model_copy(update={"reaction": self.draw.choice(UNDO_REACTIONS)})
        return (
            Command(session=session, type=kind, body=item.model_dump(mode="json")),
            Command(session=session, type=TAKE, body=back.model_dump(mode="json")),
        )

    def stock_commands(self, name: str) -> tuple[Command, Command]:
        session = f"stock:{self.draw.choice(PRODUCTS)}"
        body = {"order": f"{self.key}/{name}", "quantity": self.draw.randint(1, 6)}
        reserve = Command(session=session, type="stock.reserve", body=body)
        return reserve, reserve.model_copy(update={"type": "stock.release"})

    def account_commands(self, _: str) -> tuple[Command, Command]:
        session = f"account:{self.draw.choice(CUSTOMERS)}"
        body = {"amount": self.draw.randint(1, 30)}
        charge = Command(session=session, type="account.charge", body=body)
        return charge, charge.model_copy(update={"type": "account.deposit"})
