"""Faults injected into the in-memory twin: which of its calls go wrong, and how."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import NoReturn

from shared.domain.failures import BUS, STORE, Failure, make_error


class ProcessKilled(BaseException):
    """The worker's process ended during a call; nothing in it may catch this."""


class CallFault(StrEnum):
    """A way in which one call to the store or the bus goes wrong, in words after "the call"."""

    REFUSED = "was refused"
    LOST = "was lost and got no answer"
    UNANSWERED = "was applied and got no answer"
    FORBIDDEN = "was refused until a person changes something"
    UNACCEPTABLE = "was refused for what it carries"
    KILLED_BEFORE = "was not made any more, its worker died"
    KILLED_AFTER = "was applied, but its worker died"


# The faults that the caller survives, and that may go away by themselves.
CALL_ERRORS = (CallFault.REFUSED, CallFault.LOST, CallFault.UNANSWERED)
# All that may go away by themselves.
PASSING_FAULTS = (*CALL_ERRORS, CallFault.KILLED_BEFORE, CallFault.KILLED_AFTER)

# The faults that come after the call was applied.
APPLIED = (CallFault.UNANSWERED, CallFault.KILLED_AFTER)

# What the store and the bus say in each case. What a call without an answer did nobody knows, and
# the twin counts reads as calls of which that is so: whoever bears it bears the milder error.
STORE_FAILURES = {
    CallFault.REFUSED: Failure(STORE, 410),
    CallFault.FORBIDDEN: Failure(STORE, 403),
    CallFault.UNACCEPTABLE: Failure(STORE, 400),
}
BUS_OPERATIONS = ("send.", "look.", "dead_letters.")
BUS_FAILURES = {
    CallFault.REFUSED: Failure(BUS, "ServiceBusServerBusyError"),
    CallFault.FORBIDDEN: Failure(BUS, "MessagingEntityDisabledError"),
    CallFault.UNACCEPTABLE: Failure(BUS, "MessageSizeExceededError"),
}


class FaultPlan:
    """A plan of calls that go wrong: those at the places in `at`, and the next that were planned.

    Places count all calls in the order in which they are made, from 0. Once the plan `is_over`,
    calls are not counted in `made` and none goes wrong by its place.
    """

    def __init__(self, at: Mapping[int, CallFault] | None = None) -> None:
        self.at = at or {}
        self.made: list[str] = []
        self.is_over = False
        self.planned: dict[str, deque[CallFault | None]] = defaultdict(deque)
        self.calls: dict[str, int] = defaultdict(int)

    def plan(self, operation: str, *faults: CallFault | None) -> None:
        """The next calls of the operation go wrong like this, but for those of None."""
        self.planned[operation].extend(faults)

    @contextmanager
    def calling(self, operation: str) -> Iterator[None]:
        """Let the call in the block be made, or go wrong as planned."""
        fault = self.next_fault(operation)
        if fault is not None and fault not in APPLIED:
            raise_error(fault, operation)
        yield
        if fault is not None:
            raise_error(fault, operation)

    def next_fault(self, operation: str) -> CallFault | None:
        """Return how the next call goes wrong, or None, and count it."""
        if not self.is_over:
            self.made.append(operation)
            fault = self.at.get(len(self.made) - 1)
            if fault is not None:
                return fault
        self.calls[operation] += 1
        planned = self.planned[operation]
        return planned.popleft() if planned else None

    def __str__(self) -> str:
        """Return which calls went wrong by their places, and how."""
        names = [*self.made, *["not made"] * (max(self.at, default=-1) + 1)]
        return ", then ".join(
            f"call {place} of the store or the bus ({names[place]}) {fault}"
            for place, fault in self.at.items()
        )


def raise_error(fault: CallFault, operation: str) -> NoReturn:
    """Raise what the caller gets of a call that goes wrong, or end its process."""
    if fault in (CallFault.KILLED_BEFORE, CallFault.KILLED_AFTER):
        raise ProcessKilled(operation)
    is_bus = operation.startswith(BUS_OPERATIONS)
    failures, unanswered = (BUS_FAILURES, BUS) if is_bus else (STORE_FAILURES, STORE)
    raise make_error(failures.get(fault, Failure(unanswered)), f"({operation})")
