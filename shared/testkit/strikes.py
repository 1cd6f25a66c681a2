"""One call to the store or the bus goes wrong, or takes its worker with it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from shared.adapters.mishaps import Mishaps
from shared.domain.errors import OutcomeUnknown, Unavailable


class Killed(BaseException):
    """The worker's process died here; nothing in it runs any more."""


class How(StrEnum):
    """What became of the call, as it is told to people."""

    REFUSED = "was refused"
    LOST = "was lost and got no answer"
    UNANSWERED = "was applied and got no answer"
    KILLED_BEFORE = "was not made any more, its worker died"
    KILLED_AFTER = "was applied, but its worker died"


@dataclass
class Strike(Mishaps):
    """Counts the calls, and lets the one at place `at` go wrong; with `at` of None all go well.

    What is called once it `is_over` goes well and is not counted.
    """

    at: int | None = None
    how: How = How.REFUSED
    made: list[str] = field(default_factory=list)
    is_over: bool = False

    def suffer[T](self, operation: str, apply: Callable[[], T]) -> T:
        """Apply the operation, or go wrong."""
        if self.is_over:
            return super().suffer(operation, apply)
        how = self.falls(len(self.made))
        self.made.append(operation)
        if how is None:
            return super().suffer(operation, apply)
        return go_wrong(how, operation, apply)

    def falls(self, place: int) -> How | None:
        """How the call at this place goes wrong, if it does."""
        return self.how if place == self.at else None

    def __str__(self) -> str:
        """Which call went wrong and how."""
        struck = self.at is not None and self.at < len(self.made)
        name = self.made[self.at] if struck and self.at is not None else "no call"
        return f"call {self.at} of the store or the bus ({name}) {self.how}"


def go_wrong[T](how: How, operation: str, apply: Callable[[], T]) -> T:
    """Fail or die, with the operation applied or not."""
    if how in (How.UNANSWERED, How.KILLED_AFTER):
        apply()
    match how:
        case How.REFUSED:
            raise Unavailable(f"{operation} refused")
        case How.LOST | How.UNANSWERED:
            raise OutcomeUnknown(f"{operation} got no answer")
        case How.KILLED_BEFORE | How.KILLED_AFTER:
            raise Killed(operation)
