"""The sums of a backtest: what ran, what was left out and why, and what would be otherwise."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from shared.backtest.rerun import EntryOutcome, FoundDifference, LeftOut, Ran, SentOtherwise
from shared.domain.reports import shorten

# Of a value so many characters of its JSON are shown.
VALUE_CHARACTERS_MAX = 500
NOTHING_RAN = (
    "nothing could be run again: nothing was written in the time that is asked for, or its messages"
    " are not kept, as they are only while the app has LOCKSTEP_KEEP_INPUTS=yes"
)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A kind of difference: how many entries have it, and the first of them with both values."""

    count: int
    session: str
    position: int
    written: float
    was: str
    now: str


@dataclass(slots=True)
class Sums:
    """The sums over sessions. Those of several parts can be added, in any order."""

    sessions: int = 0
    entries: int = 0
    messages: Counter[str] = field(default_factory=Counter)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)
    found: dict[tuple[str, str], Sighting] = field(default_factory=dict)

    def take(self, session: str, outcomes: Iterable[EntryOutcome]) -> list[SentOtherwise]:
        """Count one session; returns the messages to the app itself that would be others."""
        self.sessions += 1
        sent = []
        for outcome in outcomes:
            match outcome:
                case Ran(types):
                    self.entries += 1
                    self.messages.update(types)
                case LeftOut(why, types):
                    self.left_out.update((why, one) for one in types or ("",))
                case FoundDifference(one, position, written):
                    was, now = map(show_value, (one.was, one.now))
                    seen = Sighting(1, session, position, written, was, now)
                    self.see((one.types, one.field), seen)
                case SentOtherwise():
                    sent.append(outcome)
        return sent

    def see(self, key: tuple[str, str], seen: Sighting) -> None:
        known = self.found.get(key)
        if known is not None:
            first = min(known, seen, key=lambda one: (one.written, one.session, one.position))
            seen = Sighting(known.count + seen.count, *list(asdict(first).values())[1:])
        self.found[key] = seen

    def add(self, other: "Sums") -> None:
        self.sessions += other.sessions
        self.entries += other.entries
        self.messages.update(other.messages)
        self.left_out.update(other.left_out)
        for key, seen in other.found.items():
            self.see(key, seen)

    @property
    def reasons(self) -> list[tuple[tuple[str, str], int]]:
        """The counts of what was left out, by reason and type, the most first."""
        return sorted(self.left_out.items(), key=lambda one: (-one[1], one[0]))

    @property
    def differences(self) -> list[tuple[tuple[str, str], Sighting]]:
        """The differences by type and field, those of most entries first."""
        return sorted(self.found.items(), key=lambda one: (-one[1].count, one[0]))

    def write(self) -> dict[str, Any]:
        """The sums as a JSON document."""
        return {
            "sessions": self.sessions,
            "entries": self.entries,
            "messages": dict(sorted(self.messages.items())),
            "left_out": [{"why": w, "type": t, "count": count} for (w, t), count in self.reasons],
            "differences": [{"type": t, "field": f} | asdict(s) for (t, f), s in self.differences],
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Sums":
        """The sums that `write` wrote."""
        left_out = {(one["why"], one["type"]): one["count"] for one in document["left_out"]}
        sums = cls(document["sessions"], document["entries"], Counter(document["messages"]))
        sums.left_out.update(left_out)
        for one in document["differences"]:
            key = (one["type"], one["field"])
            names = Sighting.__dataclass_fields__
            sums.found[key] = Sighting(**{name: one[name] for name in names})
        return sums


def show_value(value: Any) -> str:
    return shorten(json.dumps(value, ensure_ascii=False)[:VALUE_CHARACTERS_MAX])


def describe_sums(sums: Sums) -> list[str]:
    """The lines for people."""
    ran, left_out = sums.messages.total(), sums.left_out.total()
    lines = [f"{ran:,} messages of {sums.sessions:,} sessions ran again, {left_out:,} did not"]
    lines += [
        f"  {count:,} did not: {type_ or 'an entry'} {why}" for (why, type_), count in sums.reasons
    ]
    lines.append(f"{len(sums.found):,} differences" if sums.found else "no difference")
    for (types, name), seen in sums.differences:
        when = datetime.fromtimestamp(seen.written, UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines += [
            f"  {types}: {name}, in {seen.count:,} entries",
            f"    first in session {seen.session!r} at position {seen.position}, {when} UTC",
            f"    {seen.was} -> {seen.now}",
        ]
    return lines


class BudgetRefused(ValueError):
    """A budget cannot be read; the text says what is wrong with it."""


type Budget = Mapping[tuple[str, str], int]


def read_budget(text: str) -> Budget:
    """The differences that are expected: `[{"type": ..., "field": ..., "count": ...}]`.

    The count is the most entries that may have the difference. Raises BudgetRefused.
    """
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise BudgetRefused(f"the budget is no JSON: {error}") from None
    budget: dict[tuple[str, str], int] = {}
    for row in rows if isinstance(rows, list) else [rows]:
        match row:
            case {"type": str(types), "field": str(name), "count": int(count)} if (
                len(row) == 3 and count > 0 and (types, name) not in budget
            ):
                budget[types, name] = count
            case _:
                raise BudgetRefused(
                    "the budget is a list of objects with a type, a field and a count from 1, each"
                    f" type and field once, not {show_value(row)}"
                )
    return budget


def judge_by_budget(sums: Sums, budget: Budget) -> Sequence[str]:
    """Return what is wrong beside a budget: what it does not name, and what it names in vain."""
    wrong = []
    for (types, name), seen in sums.differences:
        most = budget.get((types, name), 0)
        if not most:
            wrong.append(f"not expected: {types}: {name}, in {seen.count:,} entries")
        elif seen.count > most:
            wrong.append(
                f"more than expected: {types}: {name}, in {seen.count:,} entries and not {most:,}"
            )
    unused = [key for key in budget if key not in sums.found]
    wrong += [f"not found: {types}: {name}: remove it from the budget" for types, name in unused]
    return wrong
