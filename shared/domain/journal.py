"""The journal of a session as data: its entries and everything that an entry says.

What a message means to a session is decided in decision.py, and what the entry after that decision
looks like is built in next_entry.py. How entries are stored is decided in shared/storage only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from shared.domain.message import OWN_SOURCE, Message, Number
from shared.domain.outbox import NO_OUTBOX, Outbox
from shared.domain.steps import NO_STEPS, KnownSteps
from shared.domain.trace import Trace

# The group under which the journal itself numbers what its sender did not, in order of arrival.
ARRIVALS = "$arrivals"

type Json = Mapping[str, Any]
# By destination and target session, the next number of a session's own outputs.
type Produced = Mapping[str, Mapping[str, int]]


class Status(StrEnum):
    """The status of an entry: how it ended, or that it has not yet."""

    WORKING = "working"  # claimed: an effectful handler is running, until the lease runs out
    COMPLETED = "completed"  # the handler ran, or a person gave the state that it holds
    SKIPPED = "skipped"  # not processed, for the reason given; the state is unchanged
    PARKED = "parked"  # kept beside the journal, because its turn has not come
    FAULTED = "faulted"  # its handler failed for good; kept with body and reason


@dataclass(frozen=True, slots=True)
class Cursor:
    """The next number of one producer group in a session, and the highest owner level seen."""

    level: int = 0
    next: int = 0


@dataclass(frozen=True, slots=True)
class EvictedCursor:
    """A producer group's cursor that lies beside the journal, because entries no longer name it.

    `ends` says of each time that it was evicted, the oldest first, what it expected next then, and
    the position of the last entry that named it. Only the newest of these are kept.
    """

    cursor: Cursor
    ends: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class MessageIdentity:
    """The message that an entry is about: enough to recognise a copy of it, without its body.

    `number` is the sender's own, or the one that the journal gave to the message on arrival: the
    message is then recognised by its source and id. `answer` is there where the entry has several
    messages: what this one's handler answered. `trace` is the message's place in a trace, for
    the worker that makes the entry; it is not stored. `saga` is the key of the saga whose command
    it is.
    """

    id: str
    type: str
    digest: str
    number: Number
    source: str = OWN_SOURCE
    trace: Trace | None = field(default=None, compare=False)
    answer: Json | None = field(default=None, compare=False)
    saga: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Marker:
    """The proof that a message without a number was seen, and the entry that took it last.

    Where its key was published, there is no such entry, and the identity has the number.
    """

    identity: MessageIdentity
    position: int | None


@dataclass(frozen=True, slots=True)
class Owner:
    """The worker that created an entry.

    The instance of a worker that is the only one of its host is `host/number`, where a later worker
    of that host has a higher number.
    """

    region: str
    instance: str

    def succeeds(self, other: "Owner") -> bool:
        """Return whether the other is gone for certain, because this worker came in its place."""
        host, _, number = self.instance.rpartition("/")
        other_host, _, other_number = other.instance.rpartition("/")
        is_same = bool(host) and (self.region, host) == (other.region, other_host)
        return is_same and int(number) > int(other_number)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at an entry; its id tells it from every other, whatever the store answered."""

    id: str
    owner: Owner


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a claim: how long it holds since its owner's last write, and which try it is.

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
class RecentEntry:
    """The traits of a new entry: where it was written, its age, and its number of messages."""

    region: str
    age_seconds: float
    messages: int


# Who decided, and why.
WHO_CHARACTERS_MAX = 128
WHY_CHARACTERS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Resolution:
    """A decision of a person; `at` is the position of the fault that the decision ended."""

    action: str
    who: str
    why: str
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Repetition:
    """The decision about a report of the error queue: who, when, and the digest of what is sent.

    `is_done` says that it was sent. Without a digest nothing is sent: the report is dismissed.
    """

    who: str
    why: str
    since: float
    digest: str
    is_done: bool = False

    @property
    def is_dismissed(self) -> bool:
        return not self.digest


def dismissal(who: str, why: str, since: float) -> Repetition:
    """The decision that nothing is to be done about a report."""
    return Repetition(who, why, since, digest="", is_done=True)


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """The model that a stored state is of, by its name, and its version."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class WholeState:
    """A state that lies whole beside the entry at a position: later ones are changes of it."""

    position: int
    state: Json
    model: ModelVersion | None


@dataclass(frozen=True, slots=True)
class StateChange:
    """A JSON Patch that makes a session's state of the last whole one; the entry `at` made it so.

    It has no operations while the state is that whole one.
    """

    at: int
    operations: Sequence[Json] = ()


@dataclass(frozen=True, slots=True)
class KeptInput:
    """A message that a handler took, whole, and what the handler looked up once for it."""

    message: Message
    captured: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a session: the messages it processed, and everything that is true after it.

    `identities` names these messages: one, several for a fold, none for what a person did.
    `state_at` is the position of the entry that holds the state, where that is another one or the
    state was not read with this one, and None before the first state; `state` may be there as well,
    where it is known. With `state_apart` the entry's own state lies in a document beside it. Later
    entries have a `change`, with operations or without. It is None for any other state, and where
    an entry of an older release follows: there the change is that of the last entry that has one.
    `base` is the whole state where it is known; it is not stored.
    `model` says what the state is of; entries from before it was recorded do not have it. `cursors`
    are those of the producer groups used last, in the order of use; `has_evicted` says that others
    may lie beside the journal. `produced` are the next numbers of this session's own outputs.
    `lagging` are the regions that still miss outputs of earlier entries when this one is made: its
    own outputs must not reach them first. `parked` counts, by producer group, the messages that
    wait beside the journal; `from_parked` says that all of this entry's were. `message` is the
    whole message where it is still needed: claimed, parked, faulted, or to be run again for its
    outputs. `inputs` are the messages that its handlers took, beside their identities, where the
    settings have them kept: None stands for one that is kept without its body, and there are none
    where `message` says it all. `raised_at` is where the handler of a fault raised: frames without
    values. `captured` is what the handler looked up once. `reminders` are the ids of the scheduled
    outputs that were not taken yet, by the names under which they can be cancelled. `lease` is
    there while the entry is a claim. `answer` is what the handler answered to whoever asked.
    `alert` is why the handler asked for a person, and `closed` who took note of what the entry
    asked for. `state_bytes` is about the size of the state as JSON, where it is known; it is not
    stored. `steps` are those that the handler of its message asked for, with results while these
    may be needed again. `is_ended` says that the session takes nothing new from this entry on.
    `silence` is after how many seconds without another entry the session ends by itself. `quiet` is
    for how many it was looked after since it was made, or since the ledgers of an ended session
    give no number any more; only compaction writes it. `written_at` is when the store wrote the
    entry last, in seconds on its clock, where it was read from there: an acknowledgement and a
    decision write it again.
    """

    session: str
    position: int
    status: Status
    identities: tuple[MessageIdentity, ...]
    state: Json | None
    state_at: int | None
    attempt: Attempt
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    has_evicted: bool = False
    produced: Produced = field(default_factory=dict)
    outbox: Outbox = NO_OUTBOX
    lagging: tuple[str, ...] = ()
    parked: Mapping[str, int] = field(default_factory=dict)
    from_parked: bool = False
    halt: Halt | None = None
    message: Message | None = None
    inputs: tuple[KeptInput | None, ...] = ()
    reason: str | None = None
    raised_at: tuple[str, ...] = ()
    resolution: Resolution | None = None
    captured: Json = field(default_factory=dict)
    reminders: Mapping[str, str] = field(default_factory=dict)
    lease: Lease | None = None
    answer: Json | None = None
    alert: str | None = None
    closed: Resolution | None = None
    state_bytes: int | None = field(default=None, compare=False)
    model: ModelVersion | None = None
    state_apart: bool = False
    change: StateChange | None = None
    base: WholeState | None = field(default=None, compare=False)
    is_ended: bool = False
    steps: KnownSteps = NO_STEPS
    silence: int | None = None
    quiet: float | None = None
    written_at: float | None = field(default=None, compare=False)

    @property
    def is_open(self) -> bool:
        """Return whether a person has to take note of an alert or refused outputs, and none has."""
        # The report of a fault may be refused, too; resolving the fault is enough for both.
        is_halting = self.halt is not None and self.halt.at == self.position
        is_refused = bool(self.outbox.refused) and not is_halting
        return self.closed is None and (self.alert is not None or is_refused)

    @property
    def taken(self) -> tuple[KeptInput | None, ...]:
        """Return what its handlers took, beside its identities; None for what is not kept."""
        if self.inputs or self.message is None:
            return self.inputs or (None,) * len(self.identities)
        return (KeptInput(self.message, self.captured),)


def lagging_regions(head: Entry | None) -> tuple[str, ...]:
    """The regions that still miss outputs of the session, as far as its head says."""
    if head is None:
        return ()
    return tuple(dict.fromkeys((*head.lagging, *head.outbox.regions)))
