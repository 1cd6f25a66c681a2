"""Give what the broker gave up on a named end: in its session's journal, or in the error queue.

The broker dead-letters a message that was delivered too often or is too old. What it can be is a
message that the journal has, one whose handler ends its worker, one from a long outage, or nothing
of ours at all. No function is triggered by dead letters: the host cannot give every body to one,
and what fails there comes back without an end and without a pause.
"""

from shared.domain import next_entry
from shared.domain.decision import (
    Busy,
    Conflict,
    Duplicate,
    Fenced,
    Gap,
    Halted,
    Proceed,
    decide,
    explain_expiry,
)
from shared.domain.errors import CallerError, InvalidMessage, LockstepError
from shared.domain.handler import Kind
from shared.domain.journal import Entry
from shared.domain.message import Message
from shared.domain.wire import from_properties
from shared.engine.consume.consume import Consumer
from shared.engine.consume.outcomes import (
    Conflicting,
    Expired,
    Faulted,
    Outcome,
    report_conflict,
)
from shared.engine.consume.park import Parking
from shared.engine.handle.handle import HandlerRunner
from shared.engine.operate.reject import Rejecter
from shared.ports import DeadLetter

# Of one run; the next one takes more.
LETTERS_MAX = 100


class DeadLetters:
    """Ends the dead letters of the app's own queue in its own region."""

    def __init__(
        self, consumer: Consumer, parking: Parking, runner: HandlerRunner, rejecter: Rejecter
    ) -> None:
        self.consumer = consumer
        self.parking = parking
        self.runner = runner
        self.dispatcher = parking.dispatcher
        self.worker = parking.worker
        self.rejecter = rejecter
        self.bus = parking.dispatcher.delivery.bus
        self.queue = parking.dispatcher.delivery.queues.here

    async def sweep(self) -> int:
        """Return how many dead letters were ended. Raises Unavailable or OutcomeUnknown."""
        region = self.worker.owner.region
        return await self.bus.end_dead_letters(region, self.queue, LETTERS_MAX, self.end)

    async def end(self, letter: DeadLetter) -> bool:
        """Return whether the letter has its named end, so that it may be removed."""
        # A crash before it is removed means that it is looked at again. The journal then knows it,
        # and a report has the same id.
        try:
            return await self.end_or_raise(letter)
        except LockstepError as error:
            self.worker.failure_log.add("ending a dead letter", self.queue, error)
            return False

    async def end_or_raise(self, letter: DeadLetter) -> bool:
        """End a letter in the journal, or report it; False where it has to be decided again."""
        reason = f"dead-lettered by the broker: {letter.reason}"
        try:
            message = from_properties(letter.properties, letter.body)
            outcome = await self.end_message(message, reason)
        except InvalidMessage as error:
            reason = f"{reason}; {error}"
        else:
            if not isinstance(outcome, Conflicting | Expired):
                return outcome is not None
            reason = f"{reason}; {outcome.reason}"
        await self.rejecter.reject(letter.session, letter.properties, letter.body, reason)
        return True

    async def end_message(self, message: Message, reason: str) -> Outcome | None:
        """Return the outcome of a message; None while others are at work on its session.

        Raises InvalidMessage for one that no journal takes.
        """
        if message.number is None:
            if self.worker.handlers.kind_of(message.type) is Kind.IDEMPOTENT:
                raise InvalidMessage("messages of its type have no journal")
            window = self.worker.policy.window_seconds
            expiry = explain_expiry(message, self.worker.clock.today(), window)
            if expiry is not None:
                return Expired(expiry)
        found = await self.consumer.find_copy(message)
        return found or await self.end_in_journal(message, reason)

    async def end_in_journal(self, message: Message, reason: str) -> Outcome | None:
        """Treat it as a delivered message, but with a fault where its handler would run."""
        outcome: Outcome | None = None
        head = await self.worker.read_head(message.session)
        match decide(head, message):
            case Proceed():
                outcome = await self.fault(head, message, reason)
            case Duplicate(checked):
                outcome = await self.consumer.confirm_copy(head, message, checked=checked)
            case Conflict():
                outcome = report_conflict(message)
            case Fenced(level):
                outcome = await self.parking.refuse(head, message, level)
            case Gap() | Halted():
                outcome = await self.parking.park(head, message)
            case Busy():
                # A worker has the session. Its claim ends, or is taken over by the sweep.
                pass
        return outcome

    async def fault(self, head: Entry | None, message: Message, reason: str) -> Outcome | None:
        """Let a person decide about the message: its handler may be what ended the workers."""
        if await self.worker.parked_under(head, message) is not None:
            # A copy of it waits in the journal, or another message has its place.
            return await self.parking.parked_before(head, message)
        opened = next_entry.open_entry(await self.dispatcher.prepare(head, message))
        ending = self.runner.fail(opened, CallerError(reason))
        entry = await self.dispatcher.append(head, ending.entry, ending.batches)
        return Faulted(entry) if entry else None
