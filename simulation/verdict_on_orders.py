"""What the business of the orders must look like, by what each saga says that it came to."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from shared.domain.journal import Json
from shared.domain.saga.plan import Step, StepOutcome, key_of
from shared.domain.saga.record import SagaRecord
from simulation.orders import CALL, PUT
from simulation.shopping import PLACE
from simulation.witness import Violation, state_of
from simulation.world import World

DONE_ONCE = frozenset({StepOutcome.DONE, StepOutcome.UNDONE, StepOutcome.KEPT})
STAYS = frozenset({StepOutcome.DONE, StepOutcome.KEPT})


@dataclass
class Books:
    """What should be in stock, in accounts and on shelves; `came` is what was delivered."""

    came: Counter[str] = field(default_factory=Counter)
    gone: Counter[str] = field(default_factory=Counter)
    charged: Counter[str] = field(default_factory=Counter)
    shipped: Counter[str] = field(default_factory=Counter)
    reserved: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    shelved: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def add(self, step: Step, outcome: StepOutcome | None) -> None:
        """Add what a step left behind."""
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


def order_violations(world: World) -> Iterator[Violation]:
    """Nothing is lost and nothing comes from nowhere."""
    books = Books()
    for message in world.senders.mailed.safe:
        if message.type in ("stock.receive", "account.deposit"):
            body = world.handlers.of(message.type).body.model_validate_json(message.body)
            books.came[message.session] += sum(body.model_dump().values())
    sessions = list(world.journal.store.entries)
    sagas = {key: state_of(world.journal, s) for s in sessions if (key := key_of(s)) is not None}
    for key, state in sagas.items():
        record = SagaRecord.model_validate(state)
        for step in record.plan.steps if record.plan else ():
            books.add(step, record.outcomes.get(step.name))
        if record.kind == PLACE:
            yield from order_document(key, record, state_of(world.journal, f"order:{key}"))
    for session in sessions:
        expected = expected_of(books, session)
        found = state_of(world.journal, session)
        if expected is not None and seen(found) != expected:
            yield Violation("P2", f"{session} is {found}, and should be {expected}")


def order_document(key: str, record: SagaRecord, order: Json) -> Iterator[Violation]:
    """An order's document says what its saga says."""
    submitted = record.outcomes.get("submit")
    expected = {
        StepOutcome.UNDONE: "cancelled",
        StepOutcome.DONE: "completed" if "complete" in record.outcomes else "submitted",
        StepOutcome.REFUSED: None,
        None: None,
    }
    if order.get("status") not in (expected.get(submitted), "new"):
        yield Violation("P5", f"order:{key} is {order}, and its saga {record.state}")


def expected_of(books: Books, session: str) -> Json | None:
    """What the state of a session should be; None for sessions of another kind."""
    left = books.came[session] - books.gone[session]
    match session.partition(":")[0]:
        case "stock":
            return {
                "received": books.came[session],
                "left": left,
                "shipped": books.shipped[session],
                "reserved": books.reserved[session],
            }
        case "account":
            return {"balance": left, "paid": books.charged[session]}
        case "shelf":
            return {"log": dict(books.shelved[session])}
        case _:
            return None


def seen(state: Json) -> Json:
    """A state in which the order of what lies on a shelf does not matter."""
    return {"log": dict(Counter(state.get("log", [])))} if state.keys() <= {"log"} else state
