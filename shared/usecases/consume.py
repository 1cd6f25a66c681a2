"""Take one message through its session's journal: at most one effect, in order, then settle.

The caller settles the message only after `consume` has returned: the journal comes first.
"""

from dataclasses import dataclass
from typing import assert_never

from shared.domain import entries, journal
from shared.domain.batch import Appended
from shared.domain.journal import (
    Duplicate,
    Entry,
    Fenced,
    Gap,
    Halted,
    Proceed,
    Status,
    cursor_of,
    require_number,
)
from shared.domain.message import Message, Number
from shared.usecases.process import Processor


@dataclass(frozen=True, slots=True)
class Processed:
    """The message's entry is in the journal; its outputs are dispatched, or owed."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class AlreadyDone:
    """An earlier copy of the message has its entry; this copy changed nothing."""


@dataclass(frozen=True, slots=True)
class Parked:
    """The message is kept beside the journal until its turn comes."""


@dataclass(frozen=True, slots=True)
class Faulted:
    """The message's handler failed for good; its entry says why."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Refused:
    """The message will never be processed; its entry says why."""

    entry: Entry


type Outcome = Processed | AlreadyDone | Parked | Faulted | Refused


class Consumer:
    """Processes messages of any session, for one worker of one region."""

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self.committer = processor.committer
        self.clock = self.committer.clock
        self.patience = self.committer.patience

    async def consume(self, message: Message) -> Outcome:
        """Give the message its entry, or find that it has one, or park it.

        What was parked behind it is drained before the answer. Raises InvalidMessage for a message
        without a number, Unavailable or OutcomeUnknown when the store did not help; then the
        message must stay in its queue.
        """
        require_number(message)
        outcome = await self.decide_until_final(message)
        await self.drain(message.session)
        return outcome

    async def decide_until_final(self, message: Message) -> Outcome:
        """Decide on the remembered head, and on the stored one whenever that was too old."""
        give_up_at = self.clock.now() + self.patience.gap_seconds
        head = self.committer.heads.get(message.session)
        is_fresh = head is None
        if is_fresh:
            # Most messages of an unknown session are copies of what another worker has done, and
            # reading is cheaper than a create that fails.
            head = await self.committer.read_head(message.session)
        while True:
            outcome = await self.act(head, message, give_up_at, is_fresh=is_fresh)
            if outcome is not None:
                return outcome
            head, is_fresh = await self.committer.read_head(message.session), True

    async def act(
        self, head: Entry | None, message: Message, give_up_at: float, *, is_fresh: bool
    ) -> Outcome | None:
        """Do what the decision says; None when it must be made again on a newer head."""
        match journal.decide(head, message):
            case Duplicate():
                await self.processor.pay_debts(head)
                return AlreadyDone()
            case Gap() | Halted() if not is_fresh:
                return None
            case Gap() if self.clock.now() < give_up_at:
                await self.clock.sleep(self.patience.poll_seconds)
                return None
            case Gap() | Halted():
                return await self.park(head, message)
            case Fenced(level):
                return await self.refuse(head, message, level)
            case Proceed():
                return outcome_of(await self.processor.process(head, message))
            case unexpected:
                assert_never(unexpected)

    async def park(self, head: Entry | None, message: Message) -> Outcome | None:
        """Keep the message beside the journal; None when another worker was first."""
        step = await self.processor.step(head, message)
        match await self.committer.commit(entries.parked(step)):
            case Appended.CREATED:
                return Parked()
            case Appended.PARKED_BEFORE:
                return AlreadyDone()
            case _:
                return None

    async def refuse(
        self, head: Entry | None, message: Message, level: int, *, from_parked: bool = False
    ) -> Outcome | None:
        """Say in the journal that the message's producer was fenced."""
        step = await self.processor.step(head, message, from_parked=from_parked)
        reason = f"a producer of owner level {level} rules"
        return outcome_of(await self.processor.commit(entries.refused(step, reason)))

    async def drain(self, session: str) -> None:
        """Process what was parked, as far as its turn has come; stops at a fault or a gap."""
        head = self.committer.heads.get(session)
        while head is not None and head.parked and head.halt is None:
            message = await self.next_parked(head)
            if message is None:
                return
            await self.take_parked(head, message)
            head = await self.committer.read_head(session)

    async def next_parked(self, head: Entry) -> Message | None:
        """A parked message whose turn has come, if there is one."""
        for group in sorted(head.parked):
            cursor = cursor_of(head, group)
            message = await self.committer.store.parked(
                head.session, Number(group, cursor.level, cursor.next)
            )
            if message is not None:
                return message
        return None

    async def take_parked(self, head: Entry, message: Message) -> None:
        """Give a parked message its entry; another worker that is first has done the same."""
        match journal.decide(head, message):
            case Proceed():
                await self.processor.process(head, message, from_parked=True)
            case Fenced(level):
                await self.refuse(head, message, level, from_parked=True)
            case _:
                pass


def outcome_of(entry: Entry | None) -> Outcome | None:
    """What an entry means to its message; None for no entry."""
    if entry is None:
        return None
    match entry.status:
        case Status.COMPLETED:
            return Processed(entry)
        case Status.FAULTED:
            return Faulted(entry)
        case Status.SKIPPED:
            return Refused(entry)
        case Status.PARKED:
            return Parked()
