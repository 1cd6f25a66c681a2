"""The journal of a session as data: its entries and everything that an entry says.

What a message means to a session is decided in decision.py, and what the entry after that decision
looks like is built in next_entry.py. How entries are stored is decided in shared/storage only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.domain.message import Message, Number
from shared.domain.outbox import NO_OUTBOX, Outbox

# The group under which the journal itself numbers what its sender did not, in order of arrival.
ARRIVALS = "$arrivals"

type Json = Mapping[str, Any]
# By destination and target session, the next number of a session's own outputs.
type Produced = Mapping[str, Mapping[str, int]]


class Status(StrEnum):
    """How an entry ended, or that it has not yet."""

    WORKING = "working"  # claimed: an effectful handler is running, until the lease runs out
    COMPLETED = "completed"  # the handler ran; state and outputs are its result
    SKIPPED = "skipped"  # not processed, for the reason given; the state is unchanged
    PARKED = "parked"  # kept beside the journal, because its turn has not come
    FAULTED = "faulted"  # its handler failed for good; kept with body and reason


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a session expects next of one producer group, and the highest owner level seen."""

    level: int = 0
    next: int = 0


@dataclass(frozen=True, slots=True)
class MessageIdentity:
    """Which message an entry is about: enough to recognise a copy of it, without its body.

    `number` is the sender's own, or the one that the journal gave to the message on arrival.
    """

    id: str
    type: str
    digest: str
    number: Number


@dataclass(frozen=True, slots=True)
class Marker:
    """The proof that a message without a number was seen, and the entry that took it last."""

    identity: MessageIdentity
    position: int


@dataclass(frozen=True, slots=True)
class Owner:
    """Who created an entry."""

    region: str
    instance: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at an entry; its id tells it from every other, whatever the store answered."""

    id: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class Lease:
    """How long a claim holds since its owner wrote it last, and which try at its message it is.

    `since` is when that was, by the store's clock, where others have written the claim after it.
    """

    seconds: float
    tries: int = 1
    since: float | None = None


@dataclass(frozen=True, slots=True)
class Halt:
    """The fault that stops a session: where its entry is, and which message it holds."""

    at: int
    number: Number


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a person decided about a fault."""

    action: str
    who: str
    why: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a session: the messages it processed, and everything that is true after it.

    `identities` names these messages; a fold has several, and every other entry has one.
    `state` is None where the step did not change it; `state_at` is then the position of the entry
    that holds it, or None before the first one. `produced` are the next numbers of this session's
    own outputs. `lagging` are the regions that still miss outputs of earlier entries when this one
    is made: its own outputs must not reach them first. `parked` counts, by producer group, the
    messages that wait beside the journal; `from_parked` says that this entry took one of them.
    `message` is the whole message where it is still needed: claimed, parked, faulted, or to be run
    again for its outputs. `captured` is what the handler looked up once. `lease` is there while the
    entry is a claim. `answer` is what the handler replied to the sender of a command.
    """

    session: str
    position: int
    status: Status
    identities: tuple[MessageIdentity, ...]
    state: Json | None
    state_at: int | None
    attempt: Attempt
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    produced: Produced = field(default_factory=dict)
    outbox: Outbox = NO_OUTBOX
    lagging: tuple[str, ...] = ()
    parked: Mapping[str, int] = field(default_factory=dict)
    from_parked: bool = False
    halt: Halt | None = None
    message: Message | None = None
    reason: str | None = None
    resolution: Resolution | None = None
    captured: Json = field(default_factory=dict)
    lease: Lease | None = None
    answer: Json | None = None


def lagging_regions(head: Entry | None) -> tuple[str, ...]:
    """The regions that still miss outputs of the session, as far as its head says."""
    if head is None:
        return ()
    return tuple(dict.fromkeys((*head.lagging, *head.outbox.regions)))
