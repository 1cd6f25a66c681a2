"""Take one message through its session's journal: at most one effect, in order, then settle.

The caller settles the message only after `consume` has returned: the journal comes first.
"""

from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from shared.domain import journal
from shared.domain.arrival import too_old
from shared.domain.entries import Step
from shared.domain.errors import Unavailable
from shared.domain.handling import Kind
from shared.domain.journal import (
    ARRIVALS,
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
    Expired,
    Outcome,
    PassedThrough,
    conflicting,
    met,
    outcome_of,
)
from shared.usecases.park import Parker, is_other, level_of


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
        self.parker = Parker(claims, coverage)
        self.window_seconds = window_seconds

    async def consume(self, message: Message) -> Outcome:
        """Give the message its entry, or find that it has one, or park it.

        What was parked behind it is drained before the answer. Raises InvalidMessage for a message
        that can never be taken, Unavailable or OutcomeUnknown when the store did not help; then the
        message must stay in its queue.
        """
        if message.number is None:
            if self.processor.kind_of(message) is Kind.IDEMPOTENT:
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
        if digest is None or await self.may_be_claimed(message):
            return None
        return met(message, digest)

    async def may_be_claimed(self, message: Message) -> bool:
        """Whether the message has a marker, and yet its work may be left to its copies."""
        if message.number is not None or self.processor.kind_of(message) is not Kind.EFFECTFUL:
            return False
        head = await self.committer.read_head(message.session)
        return head is not None and journal.decide(head, message) == Busy(head.position, same=True)

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
                return await self.parker.refuse(head, message, level)
            case Proceed():
                return await self.proceed(head, message)
            case Gap() | Halted() | Busy() as obstacle:
                # A halt needs no fresh look: on a head that is too old, parking fails.
                if not is_fresh and not isinstance(obstacle, Halted):
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
        """Wait inside the invocation, which spends no delivery; then let the journal wait.

        Where others of its group are parked, somebody has waited in vain: a batch waits only once.
        """
        in_time = self.clock.now() < give_up_at
        is_patient = in_time and not are_parked(head, message)
        match obstacle:
            case Busy(at, same=True):
                return await self.wait_for_claim(message, at, is_patient=in_time, same=True)
            case Busy(at):
                return await self.wait_for_claim(message, at, is_patient=is_patient, same=False)
            case Gap() if message.number is not None and is_patient:
                await self.clock.sleep(self.patience.poll_seconds)
                return None
            case Gap() | Halted():
                return await self.parker.park(head, message)

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
        parked = await self.parker.parked_under(head, message)
        if parked is not None and level_of(parked) > level_of(message):
            return await self.parker.refuse(head, message, level_of(parked))
        if parked is not None and is_other(parked, message):
            return conflicting(message)
        step = await self.processor.step(head, message)
        if parked is not None:
            step = taking(step, parked)
        entry = await self.claims.perform(step)
        return outcome_of(entry) or await self.parker.seen_before(message)

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
        return await self.parker.park_beside(held, message)


def is_first_of_its_group(message: Message) -> bool:
    """Whether the session most likely has no entry yet, so that creating one is the best look."""
    return message.number is not None and message.number.sequence == 0


def are_parked(head: Entry | None, message: Message) -> bool:
    """Whether messages of the message's group wait beside the journal."""
    group = message.number.group if message.number else ARRIVALS
    return head is not None and bool(head.parked.get(group))


def taking(step: Step, parked: Message) -> Step:
    """The step with what lies parked under its number removed, and named if it was another."""
    if parked.digest == step.message.digest:
        return replace(step, from_parked=True)
    return replace(step, from_parked=True, note=f"in place of the parked message {parked.id!r}")
