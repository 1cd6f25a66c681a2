"""Run one session's kept messages again, through the engine's own decision and entries.

Nothing here reads or writes anything. Each message starts from what its entry started from: the
state before it, the numbers of outputs and the reminders as they were, and what its handler had
looked up. So a difference is told where it begins, and not again by every entry after it. A run
that `goes_on` starts from what the run itself has made instead, and shows what would have followed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from shared.backtest.differences import Difference, differing_fields, sent_here
from shared.backtest.history import Kept
from shared.domain import next_entry
from shared.domain.decision import Proceed, decide
from shared.domain.errors import NewerState
from shared.domain.handler import HandlerInput, Handlers, Kind, NotCaptured
from shared.domain.journal import Entry, KeptInput, Status
from shared.domain.message import SAGA_SESSION_PREFIX
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX, Outbox
from shared.domain.reports import TOMBSTONE_TYPE, UNREADABLE_TYPE
from shared.engine.consume.claim import WORKER_ENDED
from shared.engine.consume.consume import DEAD_LETTERED
from shared.engine.consume.fold import lacks_cursor
from shared.engine.handle.handle import must_halt, require_known, run_pure
from shared.engine.handle.limit import TookTooLong
from shared.engine.handle.raised import describe_error, find_frames

# A pure handler of the team's own machine may be slower than an app's, and is not hurried.
HANDLER_SECONDS = 60.0
# The beginnings of reasons for which no handler is to blame: to run it again would tell nothing, or
# end this process, too.
NOT_OF_HANDLERS = (DEAD_LETTERED, f"RuntimeError: {WORKER_ENDED}", f"{TookTooLong.__name__}: ")


class NotRun(Exception):
    """An entry is not run again; the text says why, in words that other entries share."""


@dataclass(frozen=True, slots=True)
class Change:
    """A message that is said to have been otherwise: its body, or that it never came (None)."""

    body: bytes | None


@dataclass(frozen=True, slots=True)
class How:
    """The choice of what is run again, and from where.

    Entries written from `since` on and before `until` are run, in seconds since 1970. `changes` are
    those of messages, by id.
    """

    since: float = -inf
    until: float = inf
    goes_on: bool = False
    changes: Mapping[str, Change] = field(default_factory=dict)


EVERYTHING = How()


@dataclass(frozen=True, slots=True)
class Ran:
    """An entry was run again; each of its messages has its type here."""

    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An entry was not run again, or not compared as a whole."""

    why: str
    types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundDifference:
    """A difference, and the entry that it is of."""

    difference: Difference
    position: int
    written: float


@dataclass(frozen=True, slots=True)
class SentOtherwise:
    """A message to the app itself that would be another one, or would not be sent (None)."""

    id: str
    session: str
    body: bytes | None
    is_new: bool


type EntryOutcome = Ran | LeftOut | FoundDifference | SentOtherwise


def run_again(
    history: Iterable[Kept], handlers: Handlers, how: How = EVERYTHING
) -> Iterator[EntryOutcome]:
    """Yield what comes of the entries of one session, in their order; see the module."""
    run = SessionRun(handlers, how)
    for kept in history:
        yield from run.take(kept)


@dataclass(slots=True)
class SessionRun:
    """A run through one session: the entry before, as it was kept and as the next one begins on it.

    `passed` are messages that faulted, and do so no more in a run that goes on.
    """

    handlers: Handlers
    how: How
    before: Kept | None = None
    head: Entry | None = None
    passed: set[str] = field(default_factory=set)

    def take(self, kept: Kept) -> Iterator[EntryOutcome]:
        entry, types = kept.entry, tuple(one.type for one in kept.entry.identities)
        made: Entry | None = None
        if entry.position == 0:
            # Another session of the name was removed before, and had nothing to do with this one.
            self.before, self.head, self.passed = None, None, set()
        if self.how.since <= kept.written < self.how.until:
            try:
                made = self.make(kept)
            except NotRun as why:
                yield LeftOut(str(why), types)
            else:
                yield Ran(types)
                for difference in differing_fields(entry, made, self.handlers):
                    yield FoundDifference(difference, entry.position, kept.written)
                yield from resent(entry, made)
        if not self.move(kept, made):
            yield LeftOut("left the state that was kept, and the run went on from it", types)

    def make(self, kept: Kept) -> Entry:
        if self.follows_new_fault(kept.entry):
            raise NotRun("stands behind a fault that was none before")
        if self.is_decided_in_vain(kept.entry):
            raise NotRun("was decided about a fault that is none now")
        require_runnable(kept, self.before)
        return make_again(kept.entry, self.head, self.handlers, self.how)

    def move(self, kept: Kept, made: Entry | None) -> bool:
        """Go to the next entry; False where the run has to take up a state that it did not make."""
        entry, head, before = kept.entry, self.head, self.before
        is_apart = head is not None and before is not None and leaves_kept(head, before.entry)
        left_as_it_was = (
            entry.status in (Status.PARKED, Status.SKIPPED, Status.FAULTED)
            or self.follows_new_fault(entry)
            or self.is_decided_in_vain(entry)
        )
        if made is not None and entry.status is Status.FAULTED is not made.status:
            self.passed |= {one.id for one in entry.identities}
        self.before, self.head = kept, entry
        if not self.how.goes_on or (made is None and not is_apart):
            return True
        if made is None and not left_as_it_was:
            return False
        self.head = go_on(entry, made or head or entry)
        return True

    def follows_new_fault(self, entry: Entry) -> bool:
        head = self.head
        return self.how.goes_on and head is not None and bool(head.halt and not entry.halt)

    def is_decided_in_vain(self, entry: Entry) -> bool:
        return self.how.goes_on and any(one.id in self.passed for one in entry.identities)


def require_runnable(kept: Kept, before: Kept | None) -> None:
    """Raise NotRun for an entry that no handler made, or of which too little is kept."""
    entry = kept.entry
    if entry.session.startswith(SAGA_SESSION_PREFIX):
        raise NotRun("is a record of a saga: its plan decides, and no handler")
    if entry.status is Status.PARKED:
        raise NotRun("only parked its message: a later entry processed it")
    if entry.status is Status.WORKING:
        raise NotRun("is a claim that has not ended")
    if not entry.identities:
        raise NotRun("is a decision of a person, and has no message")
    if entry.status is Status.SKIPPED:
        raise NotRun("skipped its message: no handler ran")
    if entry.status is Status.FAULTED and (entry.reason or "").startswith(NOT_OF_HANDLERS):
        raise NotRun("faulted for what no handler returned or raised")
    if entry.position and (before is None or before.entry.position != entry.position - 1):
        raise NotRun("stands behind an entry that is not kept")
    if not kept.is_known or (before is not None and not before.is_known):
        raise NotRun("stands on a state that is not kept")


def make_again(entry: Entry, head: Entry | None, handlers: Handlers, how: How) -> Entry:
    """The entry that the handlers make of the same messages now; raises NotRun."""
    made: Entry | None = None
    for taken in entry.taken:
        if taken is None:
            raise NotRun("has a message that was not kept")
        change = how.changes.get(taken.message.id)
        if change is None or change.body is not None:
            message = taken.message
            if change is not None and change.body is not None:
                message = replace(message, body=change.body)
            after = make_one(entry, made or head, replace(taken, message=message), handlers)
            made = next_entry.fold(made, after) if made else after
    if made is None:
        # None of its messages came: all is as before.
        left = given_after(head)
        nothing = replace(entry, status=Status.COMPLETED, outbox=NO_OUTBOX, answer=None, alert=None)
        nothing = replace(nothing, identities=())
        made = replace(nothing, state=left.state, reminders=left.reminders, produced=left.produced)
        made = replace(
            made, is_ended=bool(head and head.is_ended), halt=head.halt if head else None
        )
    # Where one of them did not come, the entry is about the same messages all the same.
    answered = {one.id: one for one in made.identities}
    same = (answered.get(one.id, replace(one, answer=None)) for one in entry.identities)
    return replace(made, identities=tuple(same), position=entry.position)


def make_one(entry: Entry, head: Entry | None, taken: KeptInput, handlers: Handlers) -> Entry:
    """The entry of one message after a head; raises NotRun."""
    message = taken.message
    made_from = EntryInput(
        head,
        message,
        entry.attempt,
        entry.lagging,
        from_parked=entry.from_parked,
        resolution=entry.resolution,
    )
    opened = next_entry.open_entry(made_from)
    if (cancelled := next_entry.explain_cancellation(made_from)) is not None:
        return next_entry.skip(opened, cancelled)
    if message.type in (TOMBSTONE_TYPE, UNREADABLE_TYPE):
        raise NotRun("stands for a message that could not be sent or read")
    require_turn(made_from)
    handler = handlers.by_type.get(message.type)
    if handler is not None and handler.kind not in (Kind.PURE, Kind.DETERMINISTIC):
        raise NotRun("has a handler that calls the outside")
    given = replace(given_after(head), captured=taken.captured, looks_up=False)
    try:
        fitting = handlers.of(message.type, message.session)
        require_known(fitting.state, given.model)
        result = run_pure(fitting, given, message, handlers.by_type, HANDLER_SECONDS)
    except NewerState:
        raise NotRun("has a state of newer code than this") from None
    except TookTooLong as error:
        raise NotRun(f"has a handler that {error}") from None
    except Exception as error:
        if isinstance(error.__cause__, NotCaptured):
            raise NotRun("has a handler that looks up what was not kept") from None
        return next_entry.fail(
            opened,
            reason=describe_error(error),
            raised_at=find_frames(error),
            outbox=NO_OUTBOX,
            halts=must_halt(handler, error),
        )
    # For no region: nothing of it is ever sent.
    return next_entry.complete(opened, result, Outbox(result.batches, ()))


def require_turn(made_from: EntryInput) -> None:
    """Raise NotRun for a message that its number would not let in now."""
    head, message = made_from.head, made_from.message
    if made_from.resolution is not None or lacks_cursor(head, message):
        # A person let it in; or its place lies in a document of its own.
        return
    decisions = {type(decide(head, message, from_parked=parked)) for parked in (False, True)}
    if Proceed not in decisions:
        raise NotRun(f"would not be let in: {decisions.pop().__name__.lower()}")


def given_after(head: Entry | None) -> HandlerInput:
    """The input of the handler after a head whose state is known."""
    if head is None:
        return HandlerInput()
    given = HandlerInput(produced=head.produced, reminders=head.reminders)
    return given if head.state is None else replace(given, state=head.state, model=head.model)


def go_on(entry: Entry, made: Entry) -> Entry:
    """The kept entry with what another one left: its state, its reminders, its halt."""
    return replace(
        entry,
        state=made.state,
        state_at=None,
        model=made.model,
        produced=made.produced,
        reminders=made.reminders,
        halt=made.halt,
        is_ended=made.is_ended,
    )


def leaves_kept(head: Entry, kept: Entry) -> bool:
    """Say whether a run that goes on has left what was kept."""
    return any(
        getattr(head, name) != getattr(kept, name)
        for name in ("state", "produced", "reminders", "halt", "is_ended")
    )


def resent(entry: Entry, made: Entry) -> Iterator[SentOtherwise]:
    """The messages to the app itself that would be others."""
    was, now = sent_here(entry), sent_here(made)
    for key, message in (was | now).items():
        before, after = was.get(key), now.get(key)
        if before is None or after is None or before.body != after.body:
            body = after.body if after else None
            yield SentOtherwise(key, message.session, body, is_new=before is None)
