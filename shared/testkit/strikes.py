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
    """Counts the calls, and lets the one at place `at` go wrong; with `at` of None all go well."""

    at: int | None = None
    how: How = How.REFUSED
    made: list[str] = field(default_factory=list)
    is_over: bool = False

    def suffer[T](self, operation: str, apply: Callable[[], T]) -> T:
        """Apply the operation, or go wrong."""
        self.made.append(operation)
        if self.is_over or len(self.made) - 1 != self.at:
            return super().suffer(operation, apply)
        return self.go_wrong(operation, apply)

    def go_wrong[T](self, operation: str, apply: Callable[[], T]) -> T:
        """Fail or die, with the operation applied or not."""
        if self.how in (How.UNANSWERED, How.KILLED_AFTER):
            apply()
        match self.how:
            case How.REFUSED:
                raise Unavailable(f"{operation} refused")
            case How.LOST | How.UNANSWERED:
                raise OutcomeUnknown(f"{operation} got no answer")
            case How.KILLED_BEFORE | How.KILLED_AFTER:
                raise Killed(operation)

    def __str__(self) -> str:
        """Which call went wrong and how."""
        struck = self.at is not None and self.at < len(self.made)
        name = self.made[self.at] if struck and self.at is not None else "no call"
        return f"call {self.at} of the store or the bus ({name}) {self.how}"
