"""What a task hub keeps of an instance: what it was told, and what its orchestrator asked for."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """A turn, at a virtual second."""

    at: float


@dataclass(frozen=True, slots=True)
class Began:
    """The instance was started with this input."""

    work: str


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An activity was asked for, with its input as JSON."""

    number: int
    name: str
    work: str


@dataclass(frozen=True, slots=True)
class TimerSet:
    """A timer was asked for, for a virtual second."""

    number: int
    at: float


@dataclass(frozen=True, slots=True)
class Answered:
    """An activity answered JSON."""

    number: int
    answer: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An activity raised."""

    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fired:
    """A timer is over."""

    number: int


@dataclass(frozen=True, slots=True)
class Raised:
    """Somebody raised an event."""

    name: str


type Asked = Scheduled | TimerSet
type News = Began | Answered | Failed | Fired | Raised
type Event = TurnBegan | News | Asked
