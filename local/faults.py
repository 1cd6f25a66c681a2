"""Breaking things on purpose: the faults a component asks about before and after it acts.

A fault names what it hits (component, operation) and what happens. `*` matches anything. Faults are
matched in the order in which they were added; the first that applies wins.
"""

import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from itertools import count
from math import isfinite
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
    STALE_READ = "stale-read"  # the read finds what was there `seconds` ago
    CLOCK_OFFSET = "clock-offset"  # the component's clock is `seconds` ahead


# Only those who ask for them by name know what these mean: queues of their deliveries, the store of
# its reads and its clock.
OF_DELIVERIES = frozenset({Action.DUPLICATE, Action.LOSE_LOCK})
ASKED_BY_NAME = OF_DELIVERIES | {Action.STALE_READ, Action.CLOCK_OFFSET}
# What a component is in, as long as it is in force.
STATES = frozenset({Action.DOWN, Action.CLOCK_OFFSET})


class InvalidFault(ValueError):
    """The description of a fault has an unknown field, or a value out of range."""


def is_number(value: object) -> bool:
    """Whether a JSON value is a number; Python reads NaN and Infinity, too."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def is_whole(value: object) -> bool:
    """Whether a JSON value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule. `rate` is a probability; `times` None means without limit.

    `region` narrows it to what is served there, in a component that serves several.
    """

    component: str
    action: Action
    operation: str = "*"
    status: int = 503
    seconds: float = 0.0
    rate: float = 1.0
    times: int | None = None
    duration_seconds: float | None = None
    region: str | None = None
    substatus: int | None = None

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "Fault":
        """Read a fault from JSON; unknown fields and bad values raise InvalidFault."""
        known = [one.name for one in fields(cls)]
        for name in document:
            if name not in known:
                raise InvalidFault(f"a fault has no field {name!r}, only {', '.join(known)}")
        for name in ("component", "action"):
            if name not in document:
                raise InvalidFault(f"a fault needs the field {name!r}")
        fault = cls(**{**document, "action": read_action(document["action"])})
        fault.check()
        return fault

    def check(self) -> None:
        """Raise InvalidFault for a value of the wrong kind or out of range."""
        self._check_what()
        self._check_when()
        if self.action is Action.CLOCK_OFFSET and self.operation != "*":
            raise InvalidFault("clock-offset is of no operation")
        if self.action in ASKED_BY_NAME - OF_DELIVERIES and not self.seconds:
            raise InvalidFault(f"{self.action} needs seconds")
        if self.substatus is not None and self.action is not Action.STATUS:
            raise InvalidFault(f"{self.action} has no substatus, only status has")
        if self.is_whole and (self.times is not None or self.rate < 1.0):
            raise InvalidFault(
                f"{self.action} for every operation takes neither times nor rate: "
                "end it by duration_seconds, or lift it"
            )

    def _check_what(self) -> None:
        if not isinstance(self.component, str) or not isinstance(self.operation, str):
            raise InvalidFault("component and operation must be names")
        if self.region is not None and not isinstance(self.region, str):
            raise InvalidFault("region must be a name, or null")
        if not is_number(self.seconds):
            raise InvalidFault("seconds must be a number")
        if self.seconds < 0 and self.action is not Action.CLOCK_OFFSET:
            raise InvalidFault("seconds must not be negative, but for clock-offset")
        if not is_whole(self.status) or not 400 <= self.status <= 599:
            raise InvalidFault("status must be a number from 400 to 599")
        if self.substatus is not None and not is_whole(self.substatus):
            raise InvalidFault("substatus must be a whole number, or null")

    def _check_when(self) -> None:
        if not is_number(self.rate) or not 0.0 <= self.rate <= 1.0:
            raise InvalidFault("rate must lie within 0..1")
        if self.times is not None and (not is_whole(self.times) or self.times < 1):
            raise InvalidFault("times must be a whole number above zero, or null")
        lasts = self.duration_seconds
        if lasts is not None and (not is_number(lasts) or lasts <= 0):
            raise InvalidFault("duration_seconds must be a number above zero, or null")

    @property
    def is_whole(self) -> bool:
        """Whether it is a state of the component, not what befalls an operation now and then."""
        return self.action in STATES and self.operation == "*"

    def covers(self, component: str, region: str | None = None) -> bool:
        """Whether the rule speaks of this component, or of what it is part of."""
        whole = self.component
        covered = whole in ("*", component) or component.startswith(f"{whole}.")
        return covered and self.region in (None, region)

    def hits(self, component: str, operation: str, region: str | None = None) -> bool:
        """Whether the rule speaks of this operation."""
        return self.covers(component, region) and self.operation in ("*", operation)


def read_action(value: object) -> Action:
    """An action by its name."""
    if not isinstance(value, str) or value not in frozenset(Action):
        raise InvalidFault(f"there is no action {value!r}, only {', '.join(Action)}")
    return Action(value)


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
    _watchers: list[Callable[[], None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)  # noqa: S311 - a replayable choice, not a secret

    def arm(self, fault: Fault) -> int:
        """Put a fault in force; the answer is the number to disarm it by."""
        with self._lock:
            armed = ArmedFault(next(self._ids), fault, time.monotonic())
            self._armed.append(armed)
        for tell in list(self._watchers):
            tell()
        return armed.id

    def disarm(self, fault_id: int | None = None) -> int:
        """Lift one fault, or all; the answer is how many were lifted."""
        with self._lock:
            kept = [a for a in self._armed if fault_id is not None and a.id != fault_id]
            lifted = len(self._armed) - len(kept)
            self._armed = kept
            return lifted

    def watch(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call back after each arming, on the thread that arms; returns how to end that."""
        self._watchers.append(tell)
        return lambda: self._watchers.remove(tell)

    def strike(
        self,
        component: str,
        operation: str,
        *,
        region: str | None = None,
        among: Collection[Action] = frozenset(Action) - ASKED_BY_NAME,
    ) -> Fault | None:
        """The fault that hits this operation now, or None; a hit is spent by asking.

        Faults whose action is not `among` those the caller can carry out are passed over.
        """
        if not self._armed:
            return None
        with self._lock:
            self._forget_spent()
            for armed in self._armed:
                if (
                    armed.fault.action in among
                    and armed.fault.hits(component, operation, region)
                    and self._random.random() < armed.fault.rate
                ):
                    armed.hits += 1
                    return armed.fault
        return None

    def is_down(self, component: str, region: str | None = None) -> bool:
        """Whether a DOWN fault covers the whole component; asking spends nothing."""
        if not self._armed:
            return False
        with self._lock:
            self._forget_spent()
            return any(
                a.fault.action is Action.DOWN
                and a.fault.is_whole
                and a.fault.covers(component, region)
                for a in self._armed
            )

    def in_force(self, action: Action) -> list[Fault]:
        """The faults of one action, whatever they cover; asking spends nothing."""
        if not self._armed:
            return []
        with self._lock:
            self._forget_spent()
            return [a.fault for a in self._armed if a.fault.action is action]

    def listing(self) -> list[dict[str, Any]]:
        """The faults in force, for the control endpoint."""
        with self._lock:
            self._forget_spent()
            return [{"id": a.id, **asdict(a.fault), "hits": a.hits} for a in self._armed]

    def _forget_spent(self) -> None:
        now = time.monotonic()
        self._armed = [armed for armed in self._armed if not armed.spent(now)]
