"""Checks the journals of sagas and their participants against each other: documents in, rows out.

Nothing of the engine is used, only what is stored. Of a run that was broken off, what may still
come is unfinished; what nothing that comes could make good is broken in every run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proof.demo.checker import HeldMessage, read_parked, read_pending
from proof.testbed.pages import ReportRow

type JournalDocument = Mapping[str, Any]

GOOD_ENDS = ("completed", "compensated")
ENDS = (*GOOD_ENDS, "compensation-failed", "unfinished")
# What a document shows as long as somebody has yet to do something with it.
LEFT = ("claimed", "waiting", "pending", "blocked")


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

    @property
    def is_open(self) -> bool:
        return self.state not in ENDS


@dataclass(frozen=True, slots=True)
class SagaJournals:
    """The journals of sagas and participants, as they are stored.

    `left` counts the documents and the messages in queues that somebody has yet to do something
    with; `awaiting` are the sessions for which a message is in a queue, parked or pending.
    `is_over` says that the run came to its end and was not broken off.
    """

    entries: Mapping[str, Sequence[JournalDocument]]
    left: int = 0
    awaiting: frozenset[str] = frozenset()
    is_over: bool = True

    @classmethod
    def of(
        cls,
        documents: Iterable[JournalDocument],
        queued: Sequence[HeldMessage] = (),
        *,
        is_over: bool = True,
    ) -> "SagaJournals":
        """Sort a journal's documents by session."""
        found: dict[str, list[JournalDocument]] = {}
        left, held = len(queued), list(queued)
        for document in sorted(documents, key=lambda d: str(d["id"])):
            left += any(document.get(flag) for flag in LEFT)
            held += filter(None, (read_parked(document), *read_pending(document)))
            if document["kind"] == "entry":
                found.setdefault(document["session"], []).append(document)
        return cls(found, left, frozenset(one.session for one in held), is_over)

    def judge(self, label: str, value: str, *, is_sound: bool, is_done: bool) -> ReportRow:
        """Judge a promise: broken where it is not sound, or not done although the run is over."""
        is_unfinished = is_sound and not is_done and not self.is_over
        return ReportRow(label, value, is_sound and is_done, is_unfinished=is_unfinished)

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
            self.check_ended(sagas),
            self.check_conserved(sagas),
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
            if any(message["type"] == "order.place" for message in entry["identities"])
        )
        begun = {f"saga:{saga.key}" for saga in sagas}
        coming = {s for s in (*starts, *self.awaiting) if s.startswith("saga:")} - begun
        return self.judge(
            "orders started, once each",
            f"{len(sagas)} of {orders}",
            is_sound=len(begun) <= orders <= len(begun | coming) and set(starts.values()) <= {1},
            is_done=len(sagas) == orders,
        )

    def check_ended(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        states = Counter(saga.state for saga in sagas)
        return self.judge(
            "every order completed or fully compensated",
            ", ".join(f"{count} {state}" for state, count in states.most_common()),
            is_sound=all(saga.is_open or saga.state in GOOD_ENDS for saga in sagas),
            is_done=bool(sagas) and not any(saga.is_open for saga in sagas),
        )

    def check_conserved(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        """Check that every product's goods are left or shipped, or set aside for an open order."""
        stocks = [stock for stock in self.states("stock:").values() if stock]
        undecided = {saga.key for saga in sagas if saga.is_open}
        lost = [
            stock
            for stock in stocks
            if stock["received"] != stock["left"] + stock["shipped"] + set_aside(stock)
            or stock["reserved"].keys() - undecided
        ]
        parts = ("received", "left", "shipped")
        received, left, shipped = (sum(stock[part] for stock in stocks) for part in parts)
        value = f"{received} = {left} left + {shipped} shipped, in {len(stocks)} products"
        if reserved := sum(map(set_aside, stocks)):
            value = f"{value}, and {reserved} set aside"
        return self.judge(
            "stock conserved",
            value,
            is_sound=bool(stocks) and not lost,
            is_done=not any(stock["reserved"] for stock in stocks),
        )

    def check_shipped(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        wanted: Counter[str] = Counter()
        at_most: Counter[str] = Counter()
        for saga in sagas:
            if saga.state == "completed":
                wanted += saga.wanted
            if saga.state == "completed" or saga.is_open:
                at_most += saga.wanted
        stocks = self.states("stock:").items()
        shipped = {name: stock["shipped"] for name, stock in stocks if stock}
        return self.judge(
            "shipped is what was ordered",
            f"{wanted.total()} by completed orders, {sum(shipped.values())} by stock",
            is_sound=all(wanted[name] <= n <= at_most[name] for name, n in shipped.items()),
            is_done=all(wanted[name] == n for name, n in shipped.items()),
        )

    def check_paid(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        """Check that payments are those of completed orders, and no money is lost."""
        amounts = sum(saga.amount for saga in sagas if saga.state == "completed")
        at_most = amounts + sum(saga.amount for saga in sagas if saga.is_open)
        accounts = {name: state for name, state in self.states("account:").items() if state}
        paid = sum(account["paid"] for account in accounts.values())
        wrong = [
            name
            for name, account in accounts.items()
            if account["balance"] + account["paid"]
            # What the customer paid in is the balance of the account's first entry.
            != self.entries[f"account:{name}"][0]["state"]["balance"]
        ]
        return self.judge(
            "payments equal shipped orders",
            f"{paid} paid, {amounts} shipped",
            is_sound=amounts <= paid <= at_most and not wrong,
            is_done=paid == amounts,
        )

    def check_orders(self, sagas: Sequence[StoredSaga]) -> ReportRow:
        expected = {"completed": "completed", "compensated": "cancelled"}
        statuses = {name: order["status"] for name, order in self.states("order:").items()}
        wrong = [s for s in sagas if statuses.get(s.key) != expected.get(s.state)]
        return self.judge(
            "orders agree with their sagas",
            f"{len(wrong)} differ",
            is_sound=all(saga.is_open for saga in wrong),
            is_done=not wrong,
        )

    def check_once(self) -> ReportRow:
        processed = Counter(
            (session, message["id"])
            for session, entries in self.entries.items()
            for entry in entries
            # What waits for its turn has an entry that says so, and another one once it is done.
            if entry["status"] != "parked"
            for message in entry["identities"]
        )
        twice = sum(times > 1 for times in processed.values())
        value = f"{len(processed)} processed, {twice} of them twice"
        return ReportRow("commands", value, not twice)

    def check_settled(self) -> ReportRow:
        """Check that nothing is pending: no claim, no halt, nothing parked, nothing to deliver."""
        faulted = sum(
            bool(entry.get("faulted") or entry.get("halt"))
            for entries in self.entries.values()
            for entry in entries
        )
        return self.judge(
            "nothing pending",
            f"{self.left} documents and messages, {faulted} faulted entries",
            is_sound=not faulted,
            is_done=not self.left,
        )


def set_aside(stock: JournalDocument) -> int:
    return sum(stock["reserved"].values())


def count_adopted(sagas: Sequence[StoredSaga], killed: str | None) -> ReportRow:
    moved = [saga for saga in sagas if saga.ended_in not in (None, saga.started_in)]
    of_killed = sum(saga.started_in == killed for saga in moved)
    value = f"{len(moved)}, {of_killed} of them from the region that died"
    return ReportRow("begun in one region, ended in the other", value)


def count_reasons(sagas: Sequence[StoredSaga]) -> ReportRow:
    """Count why sagas were compensated, by the kind of step or wait that failed."""
    kinds = Counter(classify_reason(saga.reason) for saga in sagas if saga.reason)
    value = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return ReportRow("compensated because of", value or "nothing")


def classify_reason(reason: str) -> str:
    """Shorten a reason: the step without its product, the event it waited for, or the end."""
    part, _, why = reason.partition(": ")
    if why.endswith("cancelled"):
        return "cancellation"
    return f"{why.partition(':')[0]} approval" if part == "approval" else part.partition(".")[0]
