"""What the journals say of the sagas and their participants: documents in, rows out.

Nothing of the engine is used and nothing that anybody remembers: only what is stored.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from demo.row import Row

type Document = Mapping[str, Any]

ENDS = ("completed", "compensated", "compensation-failed", "unfinished")


@dataclass(frozen=True, slots=True)
class Saga:
    """A saga by its journal: when and where it started and ended, by the store's clock."""

    key: str
    state: str
    plan: Document
    reason: str | None
    started_at: float
    started_in: str
    ended_at: float | None
    ended_in: str | None

    @property
    def wanted(self) -> Counter[str]:
        """How many of each product it was to ship, by its plan."""
        return Counter(
            {
                command["session"].removeprefix("stock:"): command["body"]["quantity"]
                for command in self.commands("stock.ship")
            }
        )

    @property
    def amount(self) -> int:
        """What it was to charge."""
        return sum(command["body"]["amount"] for command in self.commands("account.charge"))

    def commands(self, kind: str) -> list[Document]:
        """The commands of one type in its plan."""
        steps = (step for part in self.plan["parts"] for step in part.get("steps", ()))
        return [step["do"] for step in steps if step["do"]["type"] == kind]


@dataclass(frozen=True, slots=True)
class Books:
    """Every session's entries, in order."""

    entries: Mapping[str, Sequence[Document]]

    @classmethod
    def of(cls, documents: Iterable[Document]) -> "Books":
        """The books of a journal's documents; what is no entry is left out."""
        found: dict[str, list[Document]] = {}
        for document in sorted(documents, key=lambda d: str(d["id"])):
            if document["kind"] == "entry":
                found.setdefault(document["session"], []).append(document)
        return cls(found)

    def states(self, prefix: str) -> dict[str, Document]:
        """The state of every session of a sort, by the rest of its name."""
        return {
            session.removeprefix(prefix): next(
                (entry["state"] for entry in reversed(entries) if "state" in entry), {}
            )
            for session, entries in self.entries.items()
            if session.startswith(prefix)
        }

    def sagas(self) -> list[Saga]:
        """Every saga that has started."""
        found = (self.saga(key, state) for key, state in self.states("saga:").items())
        return [saga for saga in found if saga is not None]

    def saga(self, key: str, state: Document) -> Saga | None:
        """A saga, unless it never started."""
        entries = self.entries[f"saga:{key}"]
        running = [e for e in entries if e.get("state", {}).get("plan")]
        ended = [e for e in running if e["state"]["state"] in ENDS]
        if not running:
            return None
        return Saga(
            key=key,
            state=state["state"],
            plan=state["plan"],
            reason=state.get("reason"),
            started_at=running[0]["_ts"],
            started_in=running[0]["owner"]["region"],
            ended_at=ended[0]["_ts"] if ended else None,
            ended_in=ended[0]["owner"]["region"] if ended else None,
        )

    def verdict(self, orders: int, killed: str | None) -> list[Row]:
        """Every promise, kept or broken."""
        sagas = self.sagas()
        return [
            self.started(sagas, orders),
            ended(sagas),
            self.conserved(),
            self.shipped(sagas),
            self.paid(sagas),
            self.agreed(sagas),
            self.once(),
            self.settled(),
            adopted(sagas, killed),
            reasons(sagas),
        ]

    def started(self, sagas: Sequence[Saga], orders: int) -> Row:
        """Whether each order's saga started, and once."""
        starts = Counter(
            entry["session"]
            for session, entries in self.entries.items()
            if session.startswith("saga:")
            for entry in entries
            if any(covered["type"] == "order.place" for covered in entry["covers"])
        )
        is_good = len(sagas) == orders and set(starts.values()) == {1}
        return Row("orders started, once each", f"{len(sagas)} of {orders}", is_good)

    def conserved(self) -> Row:
        """Whether every product's goods are left or shipped, and none are still set aside."""
        stocks = self.states("stock:").values()
        lost = [s for s in stocks if s["received"] != s["left"] + s["shipped"] or s["reserved"]]
        received, left, shipped = (
            sum(s[f] for s in stocks) for f in ("received", "left", "shipped")
        )
        value = f"{received} = {left} left + {shipped} shipped, in {len(stocks)} products"
        return Row("stock conserved", value, bool(stocks) and not lost)

    def shipped(self, sagas: Sequence[Saga]) -> Row:
        """Whether exactly what completed orders wanted was shipped, product by product."""
        wanted: Counter[str] = Counter()
        for saga in sagas:
            if saga.state == "completed":
                wanted += saga.wanted
        shipped = {name: stock["shipped"] for name, stock in self.states("stock:").items()}
        wrong = [name for name, count in shipped.items() if count != wanted[name]]
        value = f"{wanted.total()} by completed orders, {sum(shipped.values())} by stock"
        return Row("shipped is what was ordered", value, not wrong)

    def paid(self, sagas: Sequence[Saga]) -> Row:
        """Whether payments are those of completed orders, and no money is lost."""
        amounts = sum(saga.amount for saga in sagas if saga.state == "completed")
        accounts = self.states("account:")
        paid = sum(account["paid"] for account in accounts.values())
        odd = [
            name
            for name, account in accounts.items()
            if account["balance"] + account["paid"] != self.deposited(name)
        ]
        value = f"{paid} paid, {amounts} shipped"
        return Row("payments equal shipped orders", value, paid == amounts and not odd)

    def deposited(self, customer: str) -> int:
        """What a customer's account began with."""
        first: int = self.entries[f"account:{customer}"][0]["state"]["balance"]
        return first

    def agreed(self, sagas: Sequence[Saga]) -> Row:
        """Whether each order document says what its saga says."""
        expected = {"completed": "completed", "compensated": "cancelled"}
        statuses = {name: order["status"] for name, order in self.states("order:").items()}
        odd = [s.key for s in sagas if statuses.get(s.key) != expected.get(s.state)]
        return Row("orders agree with their sagas", f"{len(odd)} differ", not odd)

    def once(self) -> Row:
        """Whether every session took every command once."""
        taken = Counter(
            (session, covered["id"])
            for session, entries in self.entries.items()
            for entry in entries
            for covered in entry["covers"]
        )
        twice = sum(1 for times in taken.values() if times > 1)
        return Row("commands", f"{len(taken)} taken, {twice} of them twice", not twice)

    def settled(self) -> Row:
        """Whether nothing is pending: no claim, no halt, nothing parked and nothing owed."""
        flags = ("claimed", "waiting", "owing", "faulted")
        pending = sum(
            any(entry.get(flag) for flag in flags) or bool(entry.get("halt"))
            for entries in self.entries.values()
            for entry in entries
        )
        return Row("nothing pending", f"{pending} entries", not pending)


def ended(sagas: Sequence[Saga]) -> Row:
    """Whether every saga is completed or fully compensated."""
    states = Counter(saga.state for saga in sagas)
    value = ", ".join(f"{count} {state}" for state, count in states.most_common())
    is_good = bool(sagas) and not states.keys() - {"completed", "compensated"}
    return Row("every order completed or fully compensated", value, is_good)


def adopted(sagas: Sequence[Saga], killed: str | None) -> Row:
    """How many sagas one region began and the other ended."""
    moved = [saga for saga in sagas if saga.ended_in not in (None, saga.started_in)]
    of_killed = sum(saga.started_in == killed for saga in moved)
    value = f"{len(moved)}, {of_killed} of them from the region that died"
    return Row("begun in one region, ended in the other", value)


def reasons(sagas: Sequence[Saga]) -> Row:
    """Why sagas turned back, by the sort of step or wait that made them."""
    sorts = Counter(sort_of(saga.reason) for saga in sagas if saga.reason)
    value = ", ".join(f"{count} {sort}" for sort, count in sorts.most_common())
    return Row("turned back because of", value or "nothing")


def sort_of(reason: str) -> str:
    """A reason in a word or two: the step without its product, the wait's event, a cancellation."""
    part, _, why = reason.partition(": ")
    if why.endswith("cancelled"):
        return "cancellation"
    return f"{why.partition(':')[0]} approval" if part == "approval" else part.partition(".")[0]
