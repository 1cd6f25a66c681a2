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
class Ask:
    """A message that is to be applied at once, and answered.

    Its client tries one region after the other, waits `seconds` for each answer, of which the app
    waits `wait_seconds` for a session that cannot take it at once, and gives up after so many
    `tries`.
    """

    message: Message
    regions: tuple[str, ...]
    seconds: float
    tries: int
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KeyedPost:
    """A message that is published by HTTP, under its id as the key; it is tried as an Ask is."""

    message: Message
    regions: tuple[str, ...]
    seconds: float
    tries: int


@dataclass(frozen=True, slots=True)
class StateRead:
    """A request for the state of a session, which is tried as an Ask is."""

    session: str
    regions: tuple[str, ...]
    seconds: float
    tries: int


type HttpRequest = Ask | KeyedPost | StateRead


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that is sent. `conflicting` are plain messages whose ids were used before.

    `asks` are those of each client, one after another.
    """

    publish_plans: tuple[PublishPlan, ...] = ()
    series: tuple[NumberedSeries, ...] = ()
    plain: tuple[Message, ...] = ()
    conflicting: tuple[Message, ...] = field(default=())
    asks: tuple[tuple[HttpRequest, ...], ...] = ()

    @property
    def size(self) -> int:
        drafts = sum(len(operation) for line in self.publish_plans for operation in line.operations)
        numbered = sum(len(series.messages) for series in self.series)
        asked = sum(not isinstance(one, StateRead) for own in self.asks for one in own)
        return drafts + numbered + len(self.plain) + len(self.conflicting) + asked


def moment(seconds: float) -> str:
    """Return a virtual second as the time on a message."""
    return date_of(seconds).isoformat()
