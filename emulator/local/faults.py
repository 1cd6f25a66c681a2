"""Injected faults: every component asks for them before and after it acts.

A fault names what it hits (component, operation) and what happens. `*` matches anything. Faults are
matched in the order in which they were added; the first that applies wins. A fault that could hit
nothing is refused when it is armed.
"""

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from itertools import count
from math import isfinite
from threading import Lock
from typing import Any


class Action(StrEnum):
    DOWN = "down"  # the component refuses and drops connections
    DELAY = "delay"  # the operation waits `seconds` first
    STATUS = "status"  # the operation is refused with `status`, nothing applied
    DROP_ANSWER = "drop-answer"  # the operation is applied, its answer never sent
    DROP_CONNECTION = "drop-connection"  # the client's connection is cut, nothing applied
    DUPLICATE = "duplicate"  # what is delivered comes once more after it was completed
    LOSE_LOCK = "lose-lock"  # the lock that the operation is under is lost first
    STALE_READ = "stale-read"  # the read finds what was there `seconds` ago
    CLOCK_OFFSET = "clock-offset"  # the component's clock is `seconds` ahead
    MOVE_WRITES = "move-writes"  # writes of items go to `region` alone, not to the write region
    SILENT = "silent"  # connections are taken and stay open, and nothing passes them
    SLOW_LINK = "slow-link"  # every byte takes `seconds` longer, to the component and from it


# Only queues can carry out the first two, only the store the next, only some the last: a component
# that does not name them never gets them.
DELIVERY_ACTIONS = frozenset({Action.DUPLICATE, Action.LOSE_LOCK})
STORE_ACTIONS = frozenset({Action.STALE_READ, Action.CLOCK_OFFSET, Action.MOVE_WRITES})
LINK_ACTIONS = frozenset({Action.SILENT, Action.SLOW_LINK})
COMMON_ACTIONS = frozenset(Action) - DELIVERY_ACTIONS - STORE_ACTIONS - LINK_ACTIONS
# States of a component, in force as long as the fault is; all but DOWN are never anything else.
STATES = LINK_ACTIONS | {Action.DOWN, Action.CLOCK_OFFSET}
TIMED_ACTIONS = {Action.STALE_READ, Action.CLOCK_OFFSET, Action.SLOW_LINK}
# They hit all that a component does.
OF_NO_OPERATION = STATES - {Action.DOWN} | {Action.MOVE_WRITES}


class InvalidFault(ValueError):
    """The description of a fault has an unknown field, or a value out of range."""


def is_number(value: object) -> bool:
    """Return whether a JSON value is a number; Python reads NaN and Infinity, too."""
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule. `rate` is a probability; `times` None means without limit.

    `region` narrows it to what is served there, in a component that serves several, but for
    MOVE_WRITES, whose writes go there; `entity` narrows it to one queue, topic or subscription and
    what lies below it, or to one physical partition of each container.
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
    entity: str | None = None

    @classmethod
    def parse(cls, document: dict[str, Any]) -> "Fault":
        """Read a fault from JSON; unknown fields and bad values raise InvalidFault."""
        names = [one.name for one in fields(cls)]
        for name in document:
            if name not in names:
                raise InvalidFault(f"a fault has no field {name!r}, only {', '.join(names)}")
        for name in ("component", "action"):
            if name not in document:
                raise InvalidFault(f"a fault needs the field {name!r}")
        action = document["action"]
        if not isinstance(action, str) or action not in frozenset(Action):
            raise InvalidFault(f"there is no action {action!r}, only {', '.join(Action)}")
        fault = cls(**{**document, "action": Action(action)})
        fault.check()
        return fault

    def check(self) -> None:
        """Raise InvalidFault for a value of the wrong kind or out of range."""
        lasts = self.duration_seconds
        is_clock = self.action is Action.CLOCK_OFFSET
        rules = {
            "component and operation must be names": (
                isinstance(self.component, str) and isinstance(self.operation, str)
            ),
            "region must be a name, or null": self.region is None or isinstance(self.region, str),
            "entity must be a name, or null": self.entity is None or isinstance(self.entity, str),
            "seconds must be a number": is_number(self.seconds),
            "seconds must not be negative, but for clock-offset": (
                is_clock or not is_number(self.seconds) or self.seconds >= 0
            ),
            "status must be a number from 400 to 599": (
                is_integer(self.status) and 400 <= self.status <= 599
            ),
            "substatus must be a whole number, or null": (
                self.substatus is None or is_integer(self.substatus)
            ),
            "rate must lie within 0..1": is_number(self.rate) and 0.0 <= self.rate <= 1.0,
            "times must be a whole number above zero, or null": (
                self.times is None or (is_integer(self.times) and self.times >= 1)
            ),
            "duration_seconds must be a number above zero, or null": (
                lasts is None or (is_number(lasts) and lasts > 0)
            ),
            f"{self.action} is of no operation": (
                self.action not in OF_NO_OPERATION or self.operation == "*"
            ),
            f"{self.action} is of no entity": (
                self.action not in STATES - {Action.DOWN} or self.entity is None
            ),
            f"{self.action} needs seconds": self.action not in TIMED_ACTIONS or self.seconds != 0,
            f"{self.action} needs the region that takes the writes": (
                self.action is not Action.MOVE_WRITES or self.region is not None
            ),
            f"{self.action} has no substatus, only status has": (
                self.substatus is None or self.action is Action.STATUS
            ),
            (
                f"{self.action} for every operation takes neither times nor rate: "
                "end it by duration_seconds, or lift it"
            ): not self.is_state or (self.times is None and self.rate == 1.0),
        }
        for reason, holds in rules.items():
            if not holds:
                raise InvalidFault(reason)

    @property
    def is_state(self) -> bool:
        """Return whether the fault is a state of all it covers, and does not hit operations."""
        return self.action in STATES and self.operation == "*"

    def covers(self, component: str, region: str | None = None) -> bool:
        """Return whether the rule is for this component, or for what it is part of."""
        own = self.component
        is_own = own in ("*", component) or component.startswith(f"{own}.")
        is_everywhere = self.region is None or self.action is Action.MOVE_WRITES
        return is_own and (is_everywhere or self.region == region)

    def covers_entity(self, entity: str | None) -> bool:
        """Return whether the rule is for this entity or one above it; names ignore case."""
        if self.entity is None:
            return True
        return entity is not None and lies_below(entity, self.entity)


@dataclass(slots=True)
class ArmedFault:
    id: int
    fault: Fault
    since: float
    hits: int = 0

    def is_spent(self, now: float) -> bool:
        """Return whether the fault's time or its number of hits has run out."""
        fault = self.fault
        late = fault.duration_seconds is not None and now - self.since >= fault.duration_seconds
        return late or (fault.times is not None and self.hits >= fault.times)


class Faults:
    """The faults in force, asked by every component and set through the control endpoint."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)  # noqa: S311 - a replayable choice, not a secret
        self._armed: list[ArmedFault] = []
        self._ids = count(1)
        self._lock = Lock()
        self._watchers: list[Callable[[], None]] = []

    def arm(self, fault: Fault) -> int:
        """Put a fault in force; return the number to disarm it by."""
        with self._lock:
            armed = ArmedFault(next(self._ids), fault, time.monotonic())
            self._armed.append(armed)
        for callback in list(self._watchers):
            callback()
        return armed.id

    def disarm(self, fault_id: int | None = None) -> int:
        """Lift one fault, or all; return how many were lifted."""
        with self._lock:
            kept = [a for a in self._armed if fault_id is not None and a.id != fault_id]
            lifted = len(self._armed) - len(kept)
            self._armed = kept
            return lifted

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after each arming, on the thread that arms; call the result to end that."""
        self._watchers.append(callback)
        return lambda: self._watchers.remove(callback)

    def inject(
        self,
        component: str,
        operation: str,
        *,
        region: str | None = None,
        entity: str | None = None,
        actions: Collection[Action] = COMMON_ACTIONS,
    ) -> Fault | None:
        """The fault to inject into this operation now, or None; asking counts as a hit.

        Faults whose action is not among `actions`, which the caller can carry out, do not count,
        nor does the state of an entity.
        """
        if not self._armed:
            return None
        with self._lock:
            self._remove_spent()
            for armed in self._armed:
                fault = armed.fault
                if (
                    fault.action in actions
                    and fault.operation in ("*", operation)
                    and fault.covers(component, region)
                    and fault.covers_entity(entity)
                    and not (fault.entity and fault.is_state)
                    and self._random.random() < fault.rate
                ):
                    armed.hits += 1
                    return fault
        return None

    def is_down(self, component: str, region: str | None = None, entity: str | None = None) -> bool:
        """Return whether a DOWN fault covers the whole component, or the entity if one is named.

        Asking spends nothing.
        """
        down = self.in_force(Action.DOWN)
        return any(
            fault.is_state and fault.covers(component, region) and fault.covers_entity(entity)
            for fault in down
        )

    def is_silent(self, component: str, region: str | None = None) -> bool:
        """Return whether nothing passes the connections of a component; asking spends nothing."""
        return any(one.covers(component, region) for one in self.in_force(Action.SILENT))

    @property
    def are_armed(self) -> bool:
        """Return whether any fault may be in force; this is asked with every byte."""
        return bool(self._armed)

    def in_force(self, action: Action) -> list[Fault]:
        """The faults of one action, whatever they cover; asking spends nothing."""
        if not self._armed:
            return []
        with self._lock:
            self._remove_spent()
            return [a.fault for a in self._armed if a.fault.action is action]

    def listing(self) -> list[dict[str, Any]]:
        with self._lock:
            self._remove_spent()
            return [{"id": a.id, **asdict(a.fault), "hits": a.hits} for a in self._armed]

    def _remove_spent(self) -> None:
        now = time.monotonic()
        self._armed = [armed for armed in self._armed if not armed.is_spent(now)]


@dataclass(frozen=True, slots=True)
class Target:
    """One component: its operations, each with the actions that can hit it, and its regions.

    An operation without actions is only counted. A component without regions serves in one place.
    `states` are the actions that hit no operation, but the component; `entities` what it holds.
    """

    component: str
    operations: Mapping[str, frozenset[Action]]
    regions: frozenset[str] = frozenset()
    states: frozenset[Action] = frozenset()
    entities: frozenset[str] = frozenset()


def check_aim(fault: Fault, targets: Iterable[Target]) -> None:
    """Raise InvalidFault, naming what is wrong, unless there is something the fault can hit."""
    every = list(targets)
    component, region = fault.component, fault.region
    aimed = [target for target in every if fault.covers(target.component, region)]
    if not aimed:
        names = {target.component for target in every}
        names |= {name.partition(".")[0] for name in names}  # and what they are parts of
        raise InvalidFault(f"there is no component {component!r}, only *, {joined(names)}")
    if region is not None:
        regions = {name for target in aimed for name in target.regions}
        if region not in regions:
            others = f"only {joined(regions)}" if regions else "which is not served by region"
            raise InvalidFault(f"there is no region {region!r} in {component}, {others}")
        aimed = [target for target in aimed if region in target.regions]
    if fault.entity is not None:
        aimed = [one for one in aimed if any(map(fault.covers_entity, one.entities))]
        if not aimed:
            raise InvalidFault(f"there is no entity {fault.entity!r} in {component}")
    operations = {name for target in aimed for name in target.operations}
    if fault.operation not in operations | {"*"}:
        raise InvalidFault(
            f"{component} has no operation {fault.operation!r}, only {joined(operations)}"
        )
    actions = {
        action
        for target in aimed
        for name, actions in target.operations.items()
        if fault.operation in ("*", name)
        for action in actions
    }
    if fault.operation == "*":
        actions |= {action for target in aimed for action in target.states}
    if fault.action not in actions:
        others = f"only {joined(actions)}" if actions else "which is only counted"
        if fault.action is Action.MOVE_WRITES:
            others += "; it needs Cosmos.PerPartitionAutomaticFailover: true in the configuration"
        raise InvalidFault(f"{fault.action} never hits {fault.operation} of {component}, {others}")


def lies_below(name: str, other: str) -> bool:
    """Return whether an entity is another one, or what lies below it; names ignore case."""
    return f"{name}/".lower().startswith(f"{other}/".lower())


def joined(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
