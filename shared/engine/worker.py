"""One worker: a process in a region, with its ports, its limits, and what it remembers.

It reads the heads of sessions, and commits the entries that follow them. What it remembers saves
reads and never decides: a remembered head that is too old costs a conflict and a fresh read, and a
message that was forgotten is looked up again.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any

from shared.domain import next_entry
from shared.domain.change import apply_change
from shared.domain.decision import marker_seconds
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.handler import HandlerInput, Handlers
from shared.domain.journal import (
    ARRIVALS,
    Attempt,
    Cursor,
    Entry,
    EvictedCursor,
    Owner,
    WholeState,
)
from shared.domain.message import Message
from shared.domain.outbox import NO_OUTBOX
from shared.domain.reports import shorten
from shared.ports import Carried, Clock, Span, Telemetry, WriteResult
from shared.storage.journal import Journal

log = logging.getLogger("lockstep.failures")

# How many sessions' heads one worker remembers, and how many bytes of JSON they may have. As Python
# objects they take several times that.
HEADS_MAX = 10_000
HEADS_BYTES_MAX = 50_000_000
HEAD_OVERHEAD_BYTES = 1_000
CURSOR_BYTES = 100
UNDRAINED_MAX = 1_000
# How often the same failure is logged at most.
REPEAT_SECONDS = 60.0
# Kinds of failure are few. Whatever makes them many must not fill the memory.
FAILURES_MAX = 1_000


class StateCompacted(OutcomeUnknown):
    """The state after a remembered head is not kept any more: a newer head has its own."""


@dataclass(frozen=True, slots=True)
class WaitLimits:
    """The times that one invocation waits inside itself, so that no delivery is spent.

    `gap_seconds` is for an earlier message that is missing; `poll_seconds` is the pause between two
    reads of the journal; `unknown_tries` is how often a write without an answer is read back and
    tried again. `races_max` is how often another worker may be first before a message is parked,
    and again before it is given back to its queue. After `bound_seconds` an invocation begins
    nothing more of what it does for others: draining, and helping sessions in a sweep.
    """

    gap_seconds: float = 5.0
    poll_seconds: float = 0.5
    unknown_tries: int = 6
    races_max: int = 5
    bound_seconds: float = 20.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The durations of the engine, in seconds, and what it may do.

    `lag_seconds` is how long an outbox is left to its own worker, `acknowledge_seconds` how long an
    acknowledgement may wait for the session's next entry, `standstill_seconds` how long outputs and
    parked messages may wait before people are told, `lease_seconds` how long a claim outlives its
    owner, `window_seconds` how long copies of an un-numbered message are recognised,
    `retention_seconds` how old an entry is before it may be compacted, `handler_seconds` how long
    one run of a handler may take, and `copies_seconds` how long a queue may keep a copy of a
    message, so that a session which has ended is there for as long.
    With `keeps_inputs` entries keep the whole messages that their handlers took.
    `reply_queues` are the queues that senders may ask answers to, and `input_topics` those topics
    of which a subscription forwards to the app's own queue.
    """

    waits: WaitLimits = field(default_factory=WaitLimits)
    lag_seconds: float = 5.0
    acknowledge_seconds: float = 0.0
    standstill_seconds: float = 300.0
    lease_seconds: float = 30.0
    window_seconds: float = 7 * 24 * 3600.0
    retention_seconds: float = 7 * 24 * 3600.0
    handler_seconds: float = 60.0
    copies_seconds: float = 14 * 24 * 3600.0
    keeps_inputs: bool = False
    reply_queues: frozenset[str] = frozenset()
    input_topics: tuple[str, ...] = ()

    @property
    def pure_seconds(self) -> float:
        """The time that one run of a pure handler may take."""
        # Nothing else runs in the worker meanwhile, and claims have to be renewed within the lease.
        return min(self.handler_seconds, self.lease_seconds / 2)


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


@dataclass(slots=True)
class Logged:
    """The time at which a failure was logged last, and how often it came again since."""

    at: float
    again: int = 0


class FailureLog:
    """One worker's warnings about what it gave up on: not one for each time, as errors stay.

    What is given up on is not lost. It stays pending, parked or in its queue, and is tried again.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.logged: dict[tuple[str, str], Logged] = {}

    def add(self, what: str, where: str, why: BaseException) -> None:
        """Log what could not be done, where and why: once a minute for each (what, where).

        A minute's warning says how many there were since the last one. `where` is a region, a queue
        or a service rather than a session: there are too many sessions.
        """
        now = self.clock.now()
        last = self.logged.get((what, where))
        if last is not None and now - last.at < REPEAT_SECONDS:
            last.again += 1
            return
        again = f" ({last.again} more since the last warning)" if last and last.again else ""
        log.warning("%s: %s: %s: %s%s", what, where, type(why).__name__, shorten(str(why)), again)
        if len(self.logged) >= FAILURES_MAX:
            self.logged.clear()
        self.logged[what, where] = Logged(now)


@dataclass(frozen=True, slots=True)
class RememberedHead:
    """A head, and whether this worker made it: then it is probably still the newest."""

    entry: Entry | None
    is_ours: bool
    size: int


NO_HEAD = RememberedHead(None, is_ours=False, size=0)


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """An entry, the regions that miss its outputs, and when that is recorded at the latest."""

    entry: Entry
    left: tuple[str, ...]
    due: float


@dataclass(eq=False)
class Worker:
    """The things that every step of a message's way shares within one process."""

    owner: Owner
    journal: Journal
    clock: Clock
    handlers: Handlers
    policy: Policy
    # None where nobody listens: then nothing is called, so that it costs nothing.
    telemetry: Telemetry | None = None
    # The worker before may have died of what has no delivery to tell so: a command, or what a sweep
    # drains. Until this time of the clock that runs under claims.
    careful_until: float = 0.0

    def __post_init__(self) -> None:
        self.heads: OrderedDict[str, RememberedHead] = OrderedDict()
        self.head_bytes = 0
        self.memories: list[MutableMapping[Any, Any]] = [self.heads]
        # The acknowledgements that are not in the journal yet (acknowledge.py), by session.
        self.unrecorded: dict[str, Unrecorded] = {}
        self.marker_seconds = marker_seconds(self.policy.window_seconds)
        # Sessions whose draining was broken off because its time was up.
        self.undrained: Recent[str, None] = Recent(UNDRAINED_MAX)
        self.attempts = count(1)
        # Nothing is remembered for as long as an ended session is kept: another one of its name,
        # whose numbers begin anew, must not be taken for it.
        self.remember_seconds = self.policy.copies_seconds / 2
        self.forget_at = self.clock.now() + self.remember_seconds
        self.failure_log = FailureLog(self.clock)

    def new_attempt(self) -> Attempt:
        """An attempt that no other has: the instance's own name, and a count."""
        return Attempt(f"{self.owner.instance}/{next(self.attempts)}", self.owner)

    def span(
        self, name: str, traceparent: str | None, **attributes: str | float
    ) -> AbstractContextManager[Span | None]:
        """See Telemetry.span; nothing where nobody listens."""
        if self.telemetry is None:
            return nullcontext()
        return self.telemetry.span(name, traceparent, **attributes)

    def remember_head(self, session: str, head: Entry | None, *, is_ours: bool = False) -> None:
        """Remember a head, or that none is known; those set longest ago are forgotten first."""
        before = self.heads.pop(session, None)
        if before is not None:
            self.head_bytes -= before.size
        if head is None:
            return
        if head.inputs:
            # They are kept for an archive, and no next entry is made of them.
            head = replace(head, inputs=())
        size = HEAD_OVERHEAD_BYTES + CURSOR_BYTES * len(head.cursors)
        if head.state is not None:
            # Whoever ran the handler knows the state's size; one read from the store is measured.
            state_bytes = head.state_bytes or len(json.dumps(head.state))
            # What it is a change of is about as large.
            size += state_bytes * (2 if head.base and head.base.state is not head.state else 1)
        for batch in head.outbox.batches:
            size += sum(len(message.body) for message in batch.messages)
        self.heads[session] = RememberedHead(head, is_ours, size)
        self.head_bytes += size
        while self.head_bytes > HEADS_BYTES_MAX or len(self.heads) > HEADS_MAX:
            _, oldest = self.heads.popitem(last=False)
            self.head_bytes -= oldest.size

    def forget(self) -> None:
        """Forget what is remembered of any session."""
        for memory in self.memories:
            memory.clear()
        self.head_bytes = 0
        self.forget_at = self.clock.now() + self.remember_seconds

    async def read_head(self, session: str, *, newest: bool = True) -> Entry | None:
        """The stored head, remembered from now on. Raises Unavailable."""
        head = await self.journal.head(session, newest=newest)
        self.remember_head(session, head)
        return head

    async def commit(  # noqa: C901 - flat: what comes of one write
        self, head: Entry | None, entry: Entry
    ) -> WriteResult:
        """Create the entry after this head; anything but CREATED says why it could not be.

        Of all creates at one position at most one succeeds, in any region. That one answer is
        claim, commit, deduplication and fence at once; so it is not guessed when it is lost.
        The batch also records that every region took the head's outputs, where this worker knows.
        Raises OutcomeUnknown when the store does not answer in the end, Unavailable when it refuses
        the first try, NotStorable.
        """
        # Nearly every message with outputs is followed by another of its session, so recording the
        # delivery of the last outputs here saves a read and a write for each message.
        has_outbox = head is not None and head.outbox is not NO_OUTBOX
        left = self.unrecorded_regions(head) if head and has_outbox else None
        evicted = await self.evict_cursors(head, entry) if head and entry.has_evicted else {}
        # Only in the place of an ended session another one may be, or its removal be under way.
        version: str | None = None
        if head is not None and head.is_ended and not (version := await self.version_of(head)):
            return WriteResult.ORPHANED
        carried = Carried(left, self.marker_seconds, evicted, version)
        waits, began = self.policy.waits, self.clock.now()
        for tried in range(waits.unknown_tries):
            result: WriteResult | None = None
            try:
                result = await self.journal.append(entry, carried)
            except OutcomeUnknown:
                # It may have been created, or may still be. Trying the same attempt again is safe:
                # both tries create the same entry, and nobody else's can be in its place unseen.
                pass
            except Unavailable:
                # Refused at the first try: nothing happened. Later, an earlier try may have.
                if not tried:
                    raise
            # The SDK repeats writes by itself, so even a conflict may be our own success. The
            # attempt's id is unique to this worker and this try at the message, so it tells.
            if result is not WriteResult.CREATED and await self.is_ours(entry):
                result = WriteResult.CREATED
            if result is WriteResult.CREATED:
                self.remember_head(entry.session, entry, is_ours=True)
                if self.telemetry is not None:
                    self.telemetry.commit(entry, self.clock.now() - began)
                # Only now: had the batch failed, the acknowledgement would still be unrecorded.
                if head and left is not None and self.unrecorded_regions(head) is not None:
                    del self.unrecorded[head.session]
            if result is not None:
                return result
            await self.clock.sleep(waits.poll_seconds * tried)
        raise OutcomeUnknown(f"no answer for entry {entry.position} of session {entry.session!r}")

    async def version_of(self, head: Entry) -> str | None:
        """The version of the very entry that a head is; None where it is not stored any more."""
        stored = await self.journal.stored_entry(head.session, head.position)
        return stored.version if stored and stored.entry.attempt == head.attempt else None

    async def evict_cursors(self, head: Entry, entry: Entry) -> dict[str, EvictedCursor]:
        """The cursors that the batch moves beside the journal, by group. Raises Unavailable."""
        # What earlier evictions left is read and written again. Only an entry after this head could
        # change it meanwhile, and then this one is refused.
        cursors = next_entry.evicted_cursors(head, entry)
        before = await self.read_cursors(head.session, cursors)
        return {
            group: next_entry.evict(cursor, head.position, before[group])
            for group, cursor in cursors.items()
        }

    async def is_ours(self, entry: Entry) -> bool:
        """Return whether the entry at this position is this very attempt.

        Raises OutcomeUnknown where that cannot be read: the entry may be there.
        """
        try:
            stored = await self.journal.entry(entry.session, entry.position)
        except Unavailable as error:
            raise OutcomeUnknown(f"it cannot be read what was written: {error}") from error
        return stored is not None and stored.attempt == entry.attempt

    def unrecorded_regions(self, head: Entry) -> tuple[str, ...] | None:
        """Return the regions that miss the head's outputs, where only this worker knows it."""
        found = self.unrecorded.get(head.session)
        return found.left if found is not None and found.entry.position == head.position else None

    async def with_cursors(self, head: Entry, groups: Iterable[str]) -> Entry:
        """The head with the cursors of these producer groups, read where they may be evicted.

        It may be older than what is read. Then it only says what is true, that a number was
        processed or a producer fenced; or it lets a message proceed, and the store refuses the next
        entry, because the head has a successor. Raises Unavailable.
        """
        if not head.has_evicted:
            return head
        missing = [g for g in dict.fromkeys(groups) if g not in head.cursors and g != ARRIVALS]
        found = await self.read_cursors(head.session, missing)
        read = {group: kept.cursor if kept else Cursor() for group, kept in found.items()}
        return replace(head, cursors={**head.cursors, **read})

    async def read_cursors(
        self, session: str, groups: Collection[str]
    ) -> dict[str, EvictedCursor | None]:
        """Return what is kept beside the journal for each group. Raises Unavailable."""

        read = map(partial(self.journal.cursor, session), groups)
        return dict(zip(groups, await asyncio.gather(*read), strict=True))

    async def input_after(self, head: Entry | None) -> HandlerInput:
        """Return what the next handler starts from: the state is the head's or another entry's.

        Raises Unavailable, and StateCompacted where that entry was compacted meanwhile.
        """
        if head is None:
            return HandlerInput()
        if head.state is None and head.state_at is not None:
            head = await self.with_state(head, head.state_at)
        given = HandlerInput(produced=head.produced, reminders=head.reminders)
        if head.state is None:
            return given
        return replace(given, state=head.state, model=head.model, base=head.base)

    async def with_state(self, head: Entry, state_at: int) -> Entry:
        """The head with its state, which is that of an entry or a change of it; see above."""
        holder = await self.journal.entry(head.session, state_at)
        found: Entry | None = head
        # Entries that an older release made carry the state on, and not its change.
        while holder and holder.change is not None and found and found.change is None:
            stored = await self.journal.stored_entry(found.session, found.position - 1)
            found = stored.entry if stored else None
        if holder is None or holder.state is None or found is None:
            # The head was remembered for too long: whoever goes on reads the newest one.
            self.remember_head(head.session, None)
            raise StateCompacted(f"the state of session {head.session!r} was compacted meanwhile")
        base = WholeState(state_at, holder.state, holder.model)
        state = apply_change(base.state, found.change.operations) if found.change else base.state
        base_known = base if holder.change is not None else None
        return replace(head, state=state, model=holder.model, base=base_known)

    async def parked_under(self, head: Entry | None, message: Message) -> Message | None:
        """A message parked under the same number: a copy, or a fenced producer's."""
        number = message.number
        if head is None or number is None or not head.parked.get(number.group):
            return None
        return await self.journal.parked(message.session, number)
