"""Take one message through its session's journal: at most one effect, in order, then settle.

The caller settles the message only after `consume` has returned: the journal comes first.
"""

from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from shared.domain import entries, journal
from shared.domain.arrival import too_old
from shared.domain.batch import Appended
from shared.domain.entries import Step
from shared.domain.errors import Unavailable
from shared.domain.handling import Kind
from shared.domain.journal import (
    Busy,
    Conflict,
    Duplicate,
    Entry,
    Fenced,
    Gap,
    Halted,
    Proceed,
    Status,
)
from shared.domain.message import Message
from shared.usecases.claim import Claims
from shared.usecases.coverage import Coverage
from shared.usecases.drain import Drainer
from shared.usecases.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Expired,
    Outcome,
    Parked,
    PassedThrough,
    outcome_of,
)


class Consumer:
    """Processes messages of any session, for one worker of one region.

    `window_seconds` is how long an un-numbered message is told from a copy of itself.
    """

    def __init__(
        self, claims: Claims, coverage: Coverage, drainer: Drainer, *, window_seconds: float
    ) -> None:
        self.claims = claims
        self.processor = claims.processor
        self.committer = claims.committer
        self.clock = claims.committer.clock
        self.patience = claims.committer.patience
        self.coverage = coverage
        self.drainer = drainer
        self.window_seconds = window_seconds

    async def consume(self, message: Message) -> Outcome:
        """Give the message its entry, or find that it has one, or park it.

        What was parked behind it is drained before the answer. Raises InvalidMessage for a message
        that can never be taken, Unavailable or OutcomeUnknown when the store did not help; then the
        message must stay in its queue.
        """
        if message.number is None:
            if self.processor.handlers.kind_of(message.type) is Kind.IDEMPOTENT:
                return PassedThrough(await self.processor.pass_through(message))
            reason = too_old(message, self.clock.today(), self.window_seconds)
            if reason is not None:
                return Expired(reason)
        outcome = await self.recognise(message) or await self.decide_until_final(message)
        await self.drainer.drain(message.session)
        return outcome

    async def recognise(self, message: Message) -> Outcome | None:
        """What a copy of a covered message is, without its session's head.

        The region that leads the session expects new messages and does not look; the others expect
        copies of what it has done.
        """
        digest = self.coverage.known(message)
        if digest is None and not self.leads(message.session):
            digest = await self.coverage.look(message)
        return None if digest is None else met(message, digest)

    def leads(self, session: str) -> bool:
        """Whether this worker's messages are probably the first copies."""
        preferred = self.processor.dispatcher.delivery.preferred(session)
        is_preferred = preferred == self.committer.owner.region
        return is_preferred or self.committer.heads.ours(session) is not None

    async def decide_until_final(self, message: Message) -> Outcome:
        """Decide on a head that may be old, and on the newest whenever that was too old."""
        give_up_at = self.clock.now() + self.patience.gap_seconds
        head, is_fresh = await self.first_head(message), False
        while True:
            outcome = await self.act(head, message, give_up_at, is_fresh=is_fresh)
            if outcome is not None:
                return outcome
            head, is_fresh = await self.committer.read_head(message.session), True

    async def first_head(self, message: Message) -> Entry | None:
        """The head to try first: remembered, or read where reading is cheaper than a conflict."""
        session = message.session
        if not self.leads(session):
            return await self.committer.read_head(session)
        head = self.committer.heads.get(session)
        if head is None and not is_first_of_its_group(message):
            head = await self.committer.read_head(session, newest=False)
        return head

    async def act(
        self, head: Entry | None, message: Message, give_up_at: float, *, is_fresh: bool
    ) -> Outcome | None:
        """Do what the decision says; None when it must be made again on a newer head."""
        match journal.decide(head, message):
            case Duplicate(checked):
                return await self.met_again(head, message, checked=checked)
            case Conflict():
                return conflicting(message)
            case Fenced(level):
                return await self.refuse(head, message, level)
            case Proceed():
                return await self.proceed(head, message)
            case Gap() | Halted() | Busy() as obstacle:
                if not is_fresh:
                    return None
                return await self.wait(head, message, obstacle, give_up_at)
            case unexpected:
                assert_never(unexpected)

    async def wait(
        self,
        head: Entry | None,
        message: Message,
        obstacle: Gap | Halted | Busy,
        give_up_at: float,
    ) -> Outcome | None:
        """Wait inside the invocation, which spends no delivery; then let the journal wait."""
        is_patient = self.clock.now() < give_up_at
        match obstacle:
            case Busy(at, same):
                return await self.wait_for_claim(message, at, is_patient=is_patient, same=same)
            case Gap() if message.number is not None and is_patient:
                await self.clock.sleep(self.patience.poll_seconds)
                return None
            case Gap() | Halted():
                return await self.park(head, message)

    async def met_again(
        self, head: Entry | None, message: Message, *, checked: bool
    ) -> Outcome | None:
        """A copy of a covered message, or another message with its number."""
        if head is None:
            return None
        if checked:
            await self.finish(head)
            return AlreadyDone()
        digest = await self.coverage.search(head, message)
        return AlreadyDone() if digest is None else met(message, digest)

    async def finish(self, head: Entry) -> None:
        """Dispatch what an earlier try in this region committed and may not have sent.

        Other regions' debts are left to the rescue: their dispatcher may be about to pay.
        """
        if head.attempt.owner.region == self.committer.owner.region:
            with suppress(Unavailable):
                await self.processor.pay_debts(head)

    async def proceed(self, head: Entry | None, message: Message) -> Outcome | None:
        """Process a message whose turn has come; what lies parked under its number gives way."""
        parked = await self.parked_under(head, message)
        step = await self.processor.step(head, message)
        if parked is not None and parked.number and message.number:
            if parked.number.level > message.number.level:
                return outcome_of(await self.processor.refuse(step, parked.number.level))
            step = taking(step, parked)
        entry = await self.claims.perform(step)
        return outcome_of(entry) or await self.seen_before(message)

    async def parked_under(self, head: Entry | None, message: Message) -> Message | None:
        """A message parked under the same number: a copy, or a fenced producer's."""
        number = message.number
        if head is None or number is None or not head.parked.get(number.group):
            return None
        return await self.committer.store.parked(message.session, number)

    async def seen_before(self, message: Message) -> Outcome | None:
        """Whether an un-numbered message could not be committed because it was seen."""
        if message.number is not None:
            return None
        digest = await self.coverage.look(message)
        return None if digest is None else met(message, digest)

    async def park(self, head: Entry | None, message: Message) -> Outcome | None:
        """Keep the message beside the journal; None when another worker was first."""
        step = await self.processor.step(head, message)
        return await self.parked_as(
            message, await self.processor.append(head, entries.parked(step))
        )

    async def parked_as(self, message: Message, appended: Appended) -> Outcome | None:
        """What became of parking; None when another worker was first."""
        match appended:
            case Appended.CREATED:
                return Parked()
            case Appended.PARKED_BEFORE:
                return AlreadyDone()
            case Appended.SEEN_BEFORE:
                return await self.seen_before(message)
            case Appended.TAKEN | Appended.ORPHANED:
                return None

    async def refuse(self, head: Entry | None, message: Message, level: int) -> Outcome | None:
        """Say in the journal that the message's producer was fenced."""
        step = await self.processor.step(head, message)
        return outcome_of(await self.processor.refuse(step, level))

    async def wait_for_claim(
        self, message: Message, at: int, *, is_patient: bool, same: bool
    ) -> Outcome | None:
        """Wait for whoever claims the session, or take over, or let the journal keep the message.

        None means that the head has to be looked at again.
        """
        held = await self.committer.store.held(message.session, at)
        if held is None or held.entry.status is not Status.WORKING:
            return None
        if held.expired:
            entry = await self.claims.take_over(held)
            return outcome_of(entry) if same else None
        if is_patient:
            await self.clock.sleep(self.patience.poll_seconds)
            return None
        if same:
            return Claimed()
        return await self.parked_as(message, await self.claims.park_beside(held, message))


def is_first_of_its_group(message: Message) -> bool:
    """Whether the session most likely has no entry yet, so that creating one is the best look."""
    return message.number is not None and message.number.sequence == 0


def taking(step: Step, parked: Message) -> Step:
    """The step with what lies parked under its number removed, and named if it was another."""
    if parked.digest == step.message.digest:
        return replace(step, from_parked=True)
    return replace(step, from_parked=True, note=f"in place of the parked message {parked.id!r}")


def met(message: Message, digest: str) -> Outcome:
    """What a message is whose id or number is covered with this content."""
    return AlreadyDone() if digest == message.digest else conflicting(message)


def conflicting(message: Message) -> Conflicting:
    """The outcome for other content under a used id or number."""
    number = message.number
    used = f"number {number.sequence} of group {number.group!r}" if number else "its id"
    return Conflicting(f"message {message.id!r}: {used} was used before with other content")
