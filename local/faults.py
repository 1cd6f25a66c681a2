"""Breaking things on purpose: the faults a component asks about before and after it acts.

A fault names what it hits (component, operation) and what happens. `*` matches anything. Faults are
matched in the order in which they were added; the first that applies wins.
"""

import random
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from threading import Lock
from typing import Any


class Action(StrEnum):
    """What a fault does to the operation it hits."""

    DOWN = "down"  # the component refuses and drops connections
    DELAY = "delay"  # the operation waits `seconds` first
    STATUS = "status"  # the operation is refused with `status`, nothing applied
    DROP_ANSWER = "drop-answer"  # the operation is applied, its answer never sent
    DROP_CONNECTION = "drop-connection"  # the client's connection is cut, nothing applied
    DUPLICATE = "duplicate"  # what is delivered comes once more after it was completed
    LOSE_LOCK = "lose-lock"  # the lock that the operation is under is lost first


# Only those who ask for them by name know what these mean: the queues, of their deliveries.
OF_DELIVERIES = frozenset({Action.DUPLICATE, Action.LOSE_LOCK})


class InvalidFault(ValueError):
    """The description of a fault has an unknown field, or a value out of range."""


def is_number(value: object) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: object) -> bool:
    """Whether a JSON value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule. `rate` is a probability; `times` None means without limit."""

    component: str
    action: Action
    operation: str = "*"
    status: int = 503
    seconds: float = 0.0
    rate: float = 1.0
    times: int | None = None
    duration_seconds: float | None = None

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "Fault":
        """Read a fault from JSON; unknown fields and bad values raise InvalidFault."""
        try:
            fault = cls(**{**document, "action": Action(document["action"])})
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidFault(f"not a fault: {error}") from error
        fault.check()
        return fault

    def check(self) -> None:
        """Raise InvalidFault for a value of the wrong kind or out of range."""
        if not isinstance(self.component, str) or not isinstance(self.operation, str):
            raise InvalidFault("component and operation must be names")
        if not is_number(self.rate) or not 0.0 <= self.rate <= 1.0:
            raise InvalidFault("rate must lie within 0..1")
        if not is_number(self.seconds) or self.seconds < 0:
            raise InvalidFault("seconds must be a number that is not negative")
        if not is_whole(self.status) or not 400 <= self.status <= 599:
            raise InvalidFault("status must be a number from 400 to 599")
        if self.times is not None and (not is_whole(self.times) or self.times < 1):
            raise InvalidFault("times must be a whole number above zero, or null")
        lasts = self.duration_seconds
        if lasts is not None and (not is_number(lasts) or lasts <= 0):
            raise InvalidFault("duration_seconds must be a number above zero, or null")

    def hits(self, component: str, operation: str) -> bool:
        """Whether the rule speaks of this operation of this component, or of what it is part of."""
        whole = self.component
        covered = whole in ("*", component) or component.startswith(f"{whole}.")
        return covered and self.operation in ("*", operation)


@dataclass(slots=True)
class ArmedFault:
    """A fault in force, with what is left of it."""

    id: int
    fault: Fault
    since: float
    hits: int = 0

    def spent(self, now: float) -> bool:
        """Whether its time or its number of hits has run out."""
        fault = self.fault
        late = fault.duration_seconds is not None and now - self.since >= fault.duration_seconds
        return late or (fault.times is not None and self.hits >= fault.times)


@dataclass
class Faults:
    """The faults in force, asked by every component and set through the control endpoint."""

    seed: int = 0
    _armed: list[ArmedFault] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=lambda: count(1))
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - a replayable choice, not a secret

    def arm(self, fault: Fault) -> int:
        """Put a fault in force; the answer is the number to disarm it by."""
        with self._lock:
            armed = ArmedFault(next(self._ids), fault, time.monotonic())
            self._armed.append(armed)
            return armed.id

    def disarm(self, fault_id: int | None = None) -> int:
        """Lift one fault, or all; the answer is how many were lifted."""
        with self._lock:
            kept = [a for a in self._armed if fault_id is not None and a.id != fault_id]
            lifted = len(self._armed) - len(kept)
            self._armed = kept
            return lifted

    def strike(
        self,
        component: str,
        operation: str,
        *,
        among: Collection[Action] = frozenset(Action) - OF_DELIVERIES,
    ) -> Fault | None:
        """The fault that hits this operation now, or None; a hit is spent by asking.

        Faults whose action is not `among` those the caller can carry out are passed over.
        """
        with self._lock:
            self._forget_spent()
            for armed in self._armed:
                if (
                    armed.fault.action in among
                    and armed.fault.hits(component, operation)
                    and self._random.random() < armed.fault.rate
                ):
                    armed.hits += 1
                    return armed.fault
        return None

    def is_down(self, component: str) -> bool:
        """Whether a DOWN fault covers the whole component; asking spends nothing."""
        with self._lock:
            self._forget_spent()
            return any(
                a.fault.action is Action.DOWN and a.fault.hits(component, "*") for a in self._armed
            )

    def listing(self) -> list[dict[str, Any]]:
        """The faults in force, for the control endpoint."""
        with self._lock:
            self._forget_spent()
            return [
                {
                    "id": a.id,
                    "component": a.fault.component,
                    "operation": a.fault.operation,
                    "action": a.fault.action.value,
                    "hits": a.hits,
                }
                for a in self._armed
            ]

    def _forget_spent(self) -> None:
        now = time.monotonic()
        self._armed = [armed for armed in self._armed if not armed.spent(now)]
