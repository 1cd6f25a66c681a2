"""The gate every operation passes: it is counted, and a fault may hit it on the way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from local.counters import Counters
from local.faults import Action, Fault, Faults
from local.servicebus.refusal import Refused, refusal_of

NEVER: frozenset[Action] = frozenset()
AT_ANY_TIME = frozenset(
    {Action.DOWN, Action.DELAY, Action.STATUS, Action.DROP_ANSWER, Action.DROP_CONNECTION}
)
UNDER_LOCK = AT_ANY_TIME | {Action.LOSE_LOCK}
ON_DELIVERY = frozenset({Action.DOWN, Action.DROP_CONNECTION, Action.DUPLICATE, Action.LOSE_LOCK})
HONOURED = {  # every operation that is counted, with the actions of faults that can hit it
    "authorize": NEVER,
    "accept": AT_ANY_TIME,
    "send": AT_ANY_TIME,
    "deliver": ON_DELIVERY,
    "complete": UNDER_LOCK,
    "abandon": UNDER_LOCK,
    "dead-letter": UNDER_LOCK,
    "defer": UNDER_LOCK,
    "release": UNDER_LOCK,
    "expire-lock": NEVER,
    "schedule": AT_ANY_TIME,
    "cancel-scheduled": AT_ANY_TIME,
    "peek": AT_ANY_TIME,
    "receive-deferred": AT_ANY_TIME,
    "list-sessions": AT_ANY_TIME,
    "renew-lock": UNDER_LOCK,
    "renew-session-lock": UNDER_LOCK,
    "get-session-state": UNDER_LOCK,
    "set-session-state": UNDER_LOCK,
    "add-rule": AT_ANY_TIME,
    "remove-rule": AT_ANY_TIME,
    "list-rules": AT_ANY_TIME,
    "unknown": AT_ANY_TIME,
}


class Wire(Protocol):
    """A client's connection, as those who use it see it."""

    @property
    def is_open(self) -> bool:
        """Whether anything can still be said to the client."""
        ...

    def touch(self) -> None:
        """There is something to write; it goes out at the end of the turn."""
        ...

    def hang_up(self) -> None:
        """Drop the connection abruptly."""
        ...


@dataclass(frozen=True, slots=True)
class Attempt[Result]:
    """One operation asked for by a client.

    `apply` does it and returns the answer or raises Refused; `answer` tells the client either.
    `count` and `size` (bytes) are for the counters. `lose_lock` ends the lock that the operation
    is under, where there is one.
    """

    operation: str
    apply: Callable[[], Result]
    answer: Callable[[Result | Refused], None]
    wire: Wire
    count: int = 1
    size: int = 0
    lose_lock: Callable[[], object] | None = None


class Gate:
    """Counts and breaks the operations of one component.

    DELAY holds the operation back alone, so one sent after it may overtake it.
    """

    def __init__(
        self,
        component: str,
        *,
        faults: Faults,
        counters: Counters,
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """`later` calls back after some seconds."""
        self._component = component
        self._faults = faults
        self._counters = counters
        self._later = later

    @property
    def is_down(self) -> bool:
        """Whether the whole component has to be down."""
        return self._faults.is_down(self._component)

    def run(self, attempt: Attempt[Any]) -> None:
        """Do what was asked and answer, unless a fault is in the way."""
        match self._strike(attempt.operation):
            case None:
                self._answer(attempt, self._apply(attempt))
            case Fault(action=Action.STATUS, status=status):
                self._answer(attempt, self._refuse(attempt, refusal_of(status)))
            case Fault(action=Action.DELAY, seconds=seconds):
                self._later(seconds, lambda: self._answer(attempt, self._apply(attempt)))
            case Fault(action=Action.DROP_ANSWER):
                self._apply(attempt)
            case Fault(action=Action.LOSE_LOCK):
                self._answer(attempt, self._apply(attempt, first=attempt.lose_lock))
            case Fault(action=Action.DOWN | Action.DROP_CONNECTION):
                attempt.wire.hang_up()

    def strike_delivery(self) -> Fault | None:
        """What shall happen to the delivery that is about to be made, if anything."""
        return self._strike("deliver")

    def count(self, operation: str, status: str = "ok", *, count: int = 1, size: int = 0) -> None:
        """Count something that happened without being asked for."""
        self._counters.add(self._component, operation, status, count=count, size=size)

    def _strike(self, operation: str) -> Fault | None:
        return self._faults.inject(self._component, operation, actions=HONOURED[operation])

    def _apply(self, attempt: Attempt[Any], first: Callable[[], object] | None = None) -> Any:
        try:
            if first is not None:
                first()
            result = attempt.apply()
        except Refused as refusal:
            return self._refuse(attempt, refusal)
        self.count(attempt.operation, count=attempt.count, size=attempt.size)
        return result

    def _answer(self, attempt: Attempt[Any], result: Any) -> None:
        if attempt.wire.is_open:
            attempt.answer(result)
            attempt.wire.touch()

    def _refuse(self, attempt: Attempt[Any], refusal: Refused) -> Refused:
        self.count(attempt.operation, refusal.condition.short_name)
        return refusal
