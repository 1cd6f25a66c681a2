"""One worker: a process in a region, with its ports, its limits, and what it remembers.

What a worker remembers saves reads and never decides: a remembered head that is too old costs a
conflict and a fresh read, and a message that was forgotten is looked up again.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import count

from shared.domain.errors import OutcomeUnknown
from shared.domain.handler import Handlers
from shared.domain.journal import Attempt, Entry, Json, Owner
from shared.domain.message import Message
from shared.ports import Clock, Journal

# How many sessions' heads one worker remembers.
HEADS_MAX = 10_000


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """How long one invocation waits inside itself, so that waiting spends no delivery count.

    `gap_seconds` is for an earlier message that is missing; `poll_seconds` is the pause between two
    reads of the journal; `unknown_tries` is how often a write without an answer is read back and
    tried again.
    """

    gap_seconds: float = 5.0
    poll_seconds: float = 0.5
    unknown_tries: int = 6


@dataclass(frozen=True, slots=True)
class Policy:
    """How long things take and where they go; times are in seconds.

    `lag_seconds` is how long an outbox is left to its own worker, `acknowledge_seconds` how long an
    acknowledgement may wait for the session's next entry, `lease_seconds` how long a claim outlives
    its owner, `window_seconds` how long copies of an un-numbered message are recognised, and
    `retention_seconds` how old an entry is before it may be compacted.
    """

    output_queue: str = "lockstep-out"
    error_queue: str = "lockstep-errors"
    waits: WaitLimits = field(default_factory=WaitLimits)
    lag_seconds: float = 5.0
    acknowledge_seconds: float = 0.0
    lease_seconds: float = 30.0
    window_seconds: float = 7 * 24 * 3600.0
    retention_seconds: float = 7 * 24 * 3600.0
    batches: bool = False


class Recent[K, V](OrderedDict[K, V]):
    """A bounded memory: what was set longest ago is forgotten first, however often it was read."""

    def __init__(self, kept_max: int) -> None:
        super().__init__()
        self.kept_max = kept_max

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self.kept_max:
            self.popitem(last=False)


@dataclass(frozen=True, slots=True)
class RememberedHead:
    """A head, and whether this worker made it: then it is probably still the newest."""

    entry: Entry
    is_ours: bool


class Worker:
    """What every step of a message's way shares within one process."""

    def __init__(
        self, owner: Owner, journal: Journal, clock: Clock, handlers: Handlers, policy: Policy
    ) -> None:
        self.owner = owner
        self.journal = journal
        self.clock = clock
        self.handlers = handlers
        self.policy = policy
        self.heads: Recent[str, RememberedHead] = Recent(HEADS_MAX)
        self.attempts = count(1)

    def new_attempt(self) -> Attempt:
        """An attempt that no other has: the instance's own name, and a count."""
        return Attempt(f"{self.owner.instance}/{next(self.attempts)}", self.owner)

    def remembered_head(self, session: str) -> Entry | None:
        """The session's head as this worker saw it last, if it remembers one."""
        remembered = self.heads.get(session)
        return remembered.entry if remembered else None

    def own_head(self, session: str) -> Entry | None:
        """The remembered head, if this worker made it."""
        remembered = self.heads.get(session)
        return remembered.entry if remembered and remembered.is_ours else None

    def remember_head(self, session: str, head: Entry | None, *, is_ours: bool = False) -> None:
        """Remember a head, or that none is known."""
        if head is None:
            self.heads.pop(session, None)
        else:
            self.heads[session] = RememberedHead(head, is_ours)

    async def read_head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The stored head, remembered from now on. Raises Unavailable."""
        head = await self.journal.head(session, newest=newest)
        self.remember_head(session, head)
        return head

    async def state_after(self, head: Entry | None) -> Json:
        """The state after a head: its own, or that of the entry it points to.

        Raises Unavailable, and OutcomeUnknown where that entry was compacted meanwhile.
        """
        if head is None:
            return {}
        if head.state is not None:
            return head.state
        if head.state_at is None:
            return {}
        holder = await self.journal.entry(head.session, head.state_at)
        if holder is None or holder.state is None:
            # The head was remembered for too long: the next message reads the newest one.
            self.remember_head(head.session, None)
            raise OutcomeUnknown(f"the state of session {head.session!r} was compacted meanwhile")
        return holder.state

    async def parked_under(self, head: Entry | None, message: Message) -> Message | None:
        """A message parked under the same number: a copy, or a fenced producer's."""
        number = message.number
        if head is None or number is None or not head.parked.get(number.group):
            return None
        return await self.journal.parked(message.session, number)
