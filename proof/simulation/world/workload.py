"""The messages to a world: numbered ones, those without numbers, and those of producers."""

from dataclasses import dataclass, field

from proof.simulation.world.virtual_time import date_of
from shared.domain.message import Message
from shared.domain.producer import Draft

type Operation = tuple[Draft, ...]


@dataclass(frozen=True, slots=True)
class PublishPlan:
    """The messages of one producer to a session, operation by operation, from some time on."""

    session: str
    group: str
    operations: tuple[Operation, ...]
    level: int = 0
    begin_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class NumberedSeries:
    """Messages of a sender that numbers for itself, and knows of no other such sender."""

    messages: tuple[Message, ...]
    begin_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that is sent. `conflicting` are plain messages whose ids were used before."""

    publish_plans: tuple[PublishPlan, ...] = ()
    series: tuple[NumberedSeries, ...] = ()
    plain: tuple[Message, ...] = ()
    conflicting: tuple[Message, ...] = field(default=())

    @property
    def size(self) -> int:
        drafts = sum(len(operation) for line in self.publish_plans for operation in line.operations)
        numbered = sum(len(series.messages) for series in self.series)
        return drafts + numbered + len(self.plain) + len(self.conflicting)


def moment(seconds: float) -> str:
    """Return a virtual second as the time on a message."""
    return date_of(seconds).isoformat()
