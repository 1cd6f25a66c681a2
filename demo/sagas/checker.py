"""Checks the journals of sagas and their participants against each other: documents in, rows out.

Nothing of the engine is used, only what is stored.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.pages import ReportRow

type JournalDocument = Mapping[str, Any]

ENDS = ("completed", "compensated", "compensation-failed", "unfinished")


@dataclass(frozen=True, slots=True)
class StoredSaga:
    """A saga by its journal: when and where it started and ended, by the store's clock."""

    key: str
    state: str
    plan: JournalDocument
    reason: str | None
    started_at: float
    started_in: str
    ended_at: float | None
    ended_in: str | None

    @property
    def wanted(self) -> Counter[str]:
        return Counter(
            {
                command["session"].removeprefix("stock:"): command["body"]["quantity"]
                for command in self.commands("stock.ship")
            }
        )

    @property
    def amount(self) -> int:
        return sum(command["body"]["amount"] for command in self.commands("account.charge"))

    def commands(self, kind: str) -> list[JournalDocument]:
        steps = (step for part in self.plan["parts"] for step in part.get("steps", ()))
        return [step["do"] for step in steps if step["do"]["type"] == kind]


@dataclass(frozen=True, slots=True)
class SagaJournals:
    entries: Mapping[str, Sequence[JournalDocument]]

    @classmethod
    def of(cls, documents: Iterable[JournalDocument]) -> "SagaJournals":
        """Sort a journal's documents by session; what is no entry is left out."""
        found: dict[str, list[JournalDocument]] = {}
        for document in sorted(documents, key=lambda d: str(d["id"])):
            if document["kind"] == "entry":
                found.setdefault(document["session"], []).append(document)
        return cls(found)

    def states(self, prefix: str) -> dict[str, JournalDocument]:
        return {
            session.removeprefix(prefix): next(
                (entry["state"] for entry in reversed(entries) if "state" in entry), {}
            )
            for session, entries in self.entries.items()
            if session.startswith(prefix)
        }

    def read_sagas(self) -> list[StoredSaga]:
        found = (self.read_saga(key, state) for key, state in self.states("saga:").items())
        return [saga for saga in found if saga is not None]

    def read_saga(self, key: str, state: JournalDocument) -> StoredSaga | None:
        entries = self.entries[f"saga:{key}"]
        running = [e for e in entries if e.get("state", {}).get("plan")]
        ended = [e for e in running if e["state"]["state"] in ENDS]
        if not running:
            return None
        return StoredSaga(
            key=key,
            state=state["state"],
            plan=state["plan"],
            reason=state.get("reason"),
            started_at=running[0]["_ts"],
            started_in=running[0]["owner"]["region"],
            ended_at=ended[0]["_ts"] if ended else None,
            ended_in=ended[0]["owner"]["region"] if ended else None,
        )

    def check(self, orders: int, killed: str | None) -> list[ReportRow]:
        sagas = self.read_sagas()
        return [
            self.check_started(sagas, orders),
            check_ended(sagas),
            self.check_conserved(),
            self.check_shipped(sagas),
            self.check_paid(sagas),
            self.check_orders(sagas),
            self.check_once(),
            self.check_settled(),
            count_adopted(sagas, killed),
            count_reasons(sagas),
        ]

    def check_started(self, sagas: Sequence[StoredSaga], orders: int) -> ReportRow:
        starts = Counter(
            entry["session"]
            for session, entries in self.entries.items()
            if session.startswith("saga:")
            for entry in entries
            if any(message["type"] == "order.place" for message in entry["covers"])
        )
        is_good = len(sagas) == orders and set(starts.values()) == {1}
        return ReportRow("orders started, once each", f"{len(sagas)} of {orders}", is_good)

    def check_conserved(self) -> ReportRow:
        """Whether every product's goods are left or shipped, and none are still set aside."""
        stocks = self.states("stock:").values()
        lost = [s for s in stocks if s["received"] != s["left"] + s["shipped"] or s["reserved"]]
        parts = ("received", "left", "shipped")
        received, left, shipped = (sum(stock[part] for stock in stocks) for part in parts)
        value = f"{received} = {left} left + {shipped} shipped, in {len(stocks)} products"
        return ReportRow("stock conserved", value, bool(stocks) and not lost)

    def check_shipped(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        wanted: Counter[str] = Counter()
        for saga in sagas:
            if saga.state == "completed":
                wanted += saga.wanted
        shipped = {name: stock["shipped"] for name, stock in self.states("stock:").items()}
        wrong = [name for name, count in shipped.items() if count != wanted[name]]
        value = f"{wanted.total()} by completed orders, {sum(shipped.values())} by stock"
        return ReportRow("shipped is what was ordered", value, not wrong)

    def check_paid(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        """Whether payments are those of completed orders, and no money is lost."""
        amounts = sum(saga.amount for saga in sagas if saga.state == "completed")
        accounts = self.states("account:")
        paid = sum(account["paid"] for account in accounts.values())
        wrong = [
            name
            for name, account in accounts.items()
            if account["balance"] + account["paid"]
            # What the customer paid in is the balance of the account's first entry.
            != self.entries[f"account:{name}"][0]["state"]["balance"]
        ]
        value = f"{paid} paid, {amounts} shipped"
        return ReportRow("payments equal shipped orders", value, paid == amounts and not wrong)

    def check_orders(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        expected = {"completed": "completed", "compensated": "cancelled"}
        statuses = {name: order["status"] for name, order in self.states("order:").items()}
        wrong = [s.key for s in sagas if statuses.get(s.key) != expected.get(s.state)]
        return ReportRow("orders agree with their sagas", f"{len(wrong)} differ", not wrong)

    def check_once(self) -> ReportRow:
        processed = Counter(
            (session, message["id"])
            for session, entries in self.entries.items()
            for entry in entries
            for message in entry["covers"]
        )
        twice = sum(times > 1 for times in processed.values())
        value = f"{len(processed)} processed, {twice} of them twice"
        return ReportRow("commands", value, not twice)

    def check_settled(self) -> ReportRow:
        """Whether nothing is pending: no claim, no halt, nothing parked, nothing to deliver."""
        flags = ("claimed", "waiting", "owing", "faulted")
        pending = sum(
            any(entry.get(flag) for flag in flags) or bool(entry.get("halt"))
            for entries in self.entries.values()
            for entry in entries
        )
        return ReportRow("nothing pending", f"{pending} entries", not pending)


def check_ended(sagas: Sequence[StoredSaga]) -> ReportRow:
    states = Counter(saga.state for saga in sagas)
    value = ", ".join(f"{count} {state}" for state, count in states.most_common())
    is_good = bool(sagas) and not states.keys() - {"completed", "compensated"}
    return ReportRow("every order completed or fully compensated", value, is_good)


def count_adopted(sagas: Sequence[StoredSaga], killed: str | None) -> ReportRow:
    moved = [saga for saga in sagas if saga.ended_in not in (None, saga.started_in)]
    of_killed = sum(saga.started_in == killed for saga in moved)
    value = f"{len(moved)}, {of_killed} of them from the region that died"
    return ReportRow("begun in one region, ended in the other", value)


def count_reasons(sagas: Sequence[StoredSaga]) -> ReportRow:
    """Why sagas were compensated, by the kind of step or wait that failed."""
    kinds = Counter(classify_reason(saga.reason) for saga in sagas if saga.reason)
    value = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return ReportRow("compensated because of", value or "nothing")


def classify_reason(reason: str) -> str:
    """A reason in short: the step without its product, the event it waited for, or the end."""
    part, _, why = reason.partition(": ")
    if why.endswith("cancelled"):
        return "cancellation"
    return f"{why.partition(':')[0]} approval" if part == "approval" else part.partition(".")[0]
