"""Failures planned for the in-memory twin."""

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto

from shared.domain.errors import OutcomeUnknown, Unavailable


class Mishap(Enum):
    """How an operation can go wrong."""

    REFUSED = auto()  # nothing is applied and the caller is told so
    LOST = auto()  # nothing is applied and no answer comes
    UNANSWERED = auto()  # applied, but no answer comes


@dataclass
class Mishaps:
    """Failures planned per operation; each strikes once, in order."""

    planned: dict[str, deque[Mishap]] = field(default_factory=lambda: defaultdict(deque))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def plan(self, operation: str, *mishaps: Mishap) -> None:
        """The next calls of the operation go wrong like this."""
        self.planned[operation].extend(mishaps)

    def suffer[T](self, operation: str, apply: Callable[[], T]) -> T:
        """Apply the operation, or go wrong as planned."""
        self.calls[operation] += 1
        mishap = self.planned[operation].popleft() if self.planned[operation] else None
        match mishap:
            case None:
                return apply()
            case Mishap.REFUSED:
                raise Unavailable(f"{operation} refused")
            case Mishap.LOST:
                raise OutcomeUnknown(f"{operation} lost")
            case Mishap.UNANSWERED:
                apply()
                raise OutcomeUnknown(f"{operation} unanswered")
