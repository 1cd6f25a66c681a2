"""Take one message through its session's journal: at most one effect, in order, then settle.

The caller settles the message only after `consume` has returned: the journal comes first.
"""

from dataclasses import dataclass, replace
from itertools import count
from typing import assert_never

from shared.domain import handling, journal
from shared.domain.documents import position_id
from shared.domain.errors import GapStillOpen, OutcomeUnknown, Unavailable
from shared.domain.handling import Handlers
from shared.domain.journal import Duplicate, Entry, Fenced, Gap, Owner, Proceed
from shared.domain.message import Message
from shared.domain.outbox import Owing
from shared.ports import Appended, Clock, Journal
from shared.usecases.dispatch import Dispatcher
from shared.usecases.heads import KnownHeads


@dataclass(frozen=True, slots=True)
class Processed:
    """The message's entry is in the journal; its outputs are dispatched, or owed."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """An earlier copy of the message has its entry; this copy changed nothing."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The message will never be processed; its entry says why."""

    entry: Entry


type Outcome = Processed | AlreadyDone | Refused


@dataclass(frozen=True, slots=True)
class Patience:
    """How long one invocation waits inside itself, so that waiting spends no delivery count."""

    gap_seconds: float = 20.0
    poll_seconds: float = 0.5
    unknown_tries: int = 6


class Consumer:
    """Processes messages of any session, for one worker of one region."""

    def __init__(
        self,
        store: Journal,
        dispatcher: Dispatcher,
        clock: Clock,
        handlers: Handlers,
        owner: Owner,
        *,
        output_queue: str,
        patience: Patience | None = None,
    ) -> None:
        self.store = store
        self.dispatcher = dispatcher
        self.clock = clock
        self.handlers = handlers
        self.owner = owner
        self.output_queue = output_queue
        self.patience = patience or Patience()
        self.heads = KnownHeads()
        self.attempts = count(1)

    async def consume(self, message: Message) -> Outcome:
        """Give the message its entry, or find that it has one.

        Raises CallerError for what can never be processed, GapStillOpen when an earlier message
        did not come in time, Unavailable or OutcomeUnknown when the store did not help. After any
        of these the message must stay in its queue.
        """
        give_up_at = self.clock.now() + self.patience.gap_seconds
        head = self.heads.get(message.session)
        is_fresh = head is None
        if is_fresh:
            # Most messages of an unknown session are copies of what another worker has done, and
            # reading is cheaper than a create that fails.
            head = await self.read_head(message.session)
        while True:
            match journal.decide(head, message):
                case Duplicate():
                    await self.pay_debts(head)
                    return AlreadyDone()
                case Gap(expected):
                    if is_fresh:
                        await self.wait_for(message, expected, give_up_at)
                case Fenced(level):
                    entry = self.refusal(head, message, f"a producer of owner level {level} rules")
                    if await self.commit(entry):
                        return Refused(entry)
                case Proceed():
                    behind = await self.pay_debts(head)
                    entry = self.result(head, message, behind)
                    if await self.commit(entry):
                        return Processed(await self.dispatched(entry))
                case unexpected:
                    assert_never(unexpected)
            head, is_fresh = await self.read_head(message.session), True

    def result(self, head: Entry | None, message: Message, behind: tuple[str, ...] = ()) -> Entry:
        """Run the handler on the head's state: the entry that would commit what it gave."""
        handler = self.handlers.of(message.type)
        state = head.state if head else {}
        outcome = handling.run(handler, state, head.produced if head else {}, message)
        return journal.completed(
            head,
            message,
            state=outcome.state,
            outbox=self.dispatcher.owed_everywhere(self.output_queue, outcome.messages),
            produced=outcome.produced,
            attempt=self.new_attempt(),
            owner=self.owner,
            behind=behind,
        )

    def refusal(self, head: Entry | None, message: Message, reason: str) -> Entry:
        """The entry that says why the message is not processed."""
        return journal.skipped(
            head,
            message,
            reason=reason,
            attempt=self.new_attempt(),
            owner=self.owner,
            behind=regions_behind(head),
        )

    async def commit(self, entry: Entry) -> bool:
        """Create the entry; False when another worker was first at its position.

        An unknown outcome is read back and told apart by attempt. Creating the same attempt again
        is safe while nothing is stored there: both creates are the same one.
        """
        for tried in range(self.patience.unknown_tries):
            appended = await self.append(entry)
            if appended is Appended.CREATED or await self.is_ours(entry):
                self.heads.learn(entry.session, entry)
                return True
            if appended is not None:
                return False
            await self.clock.sleep(self.patience.poll_seconds * tried)
        raise OutcomeUnknown(f"no answer for entry {entry.position} of session {entry.session!r}")

    async def append(self, entry: Entry) -> Appended | None:
        """Create the entry; None when the outcome is unknown."""
        try:
            return await self.store.append(entry)
        except OutcomeUnknown:
            return None

    async def is_ours(self, entry: Entry) -> bool:
        """Whether the entry at this position is this very attempt."""
        stored = await self.store.entry(entry.session, entry.position)
        return stored is not None and stored.attempt == entry.attempt

    async def pay_debts(self, head: Entry | None) -> tuple[str, ...]:
        """Dispatch what earlier entries still owe, before anything follows them.

        The regions still behind are returned. Raises Unavailable when that is every region: the
        next entry must not overtake everywhere.
        """
        if head is None or not regions_behind(head):
            return ()
        owings = [o for o in await self.store.owing_of(head.session) if o.of_entry]
        regions = self.dispatcher.delivery.regions
        behind = await self.dispatcher.pay(owings, regions)
        if set(behind) == set(regions):
            raise Unavailable(f"no region takes the outputs of session {head.session!r}")
        self.heads.forget(head.session)
        return behind

    async def dispatched(self, entry: Entry) -> Entry:
        """Dispatch the entry's outbox to the regions that lack nothing earlier."""
        in_order = [r for r in entry.outbox.regions if r not in entry.behind]
        due = entry.outbox.only(in_order)
        if due.owing:
            owing = Owing(entry.session, position_id(entry.position), due)
            left = await self.dispatcher.dispatch(owing)
            delivered = set(due.regions) - set(left.regions)
            entry = replace(entry, outbox=entry.outbox.delivered(delivered))
            self.heads.learn(entry.session, entry)
        return entry

    async def read_head(self, session: str) -> Entry | None:
        """The stored head, remembered from now on."""
        head = await self.store.head(session)
        self.heads.learn(session, head)
        return head

    async def wait_for(self, message: Message, expected: int, give_up_at: float) -> None:
        """Let time pass for an earlier message; raises GapStillOpen when there is none left."""
        if self.clock.now() >= give_up_at:
            number = journal.require_number(message)
            raise GapStillOpen(
                f"session {message.session!r} has {number.sequence} but waits for {expected}"
            )
        await self.clock.sleep(self.patience.poll_seconds)

    def new_attempt(self) -> str:
        """A name no other try has: the instance's own, and a count."""
        return f"{self.owner.instance}/{next(self.attempts)}"


def regions_behind(head: Entry | None) -> tuple[str, ...]:
    """The regions to which the session still owes outputs, as far as its head knows."""
    if head is None:
        return ()
    owed = head.outbox.regions if head.outbox.owing else ()
    return tuple(dict.fromkeys((*head.behind, *owed)))
