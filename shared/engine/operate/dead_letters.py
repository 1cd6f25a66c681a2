"""Bring what the broker gave up on to an end: it is run after all, or goes to the error queue.

The broker dead-letters a message that was delivered too often or is too old. What it can be is a
message that the journal has, a good one that met no worker for long, one whose handler ends its
worker, one that no host can give to a function, or nothing of ours at all. A subscription that
feeds the queue gives up on what the queue does not take: it was full, or there is no session id. No
function is triggered by dead letters: the host cannot give every body to one, and what fails there
comes back without an end and without a pause.

Those of the error queue are reports that expired there: none of them ends before somebody decided.
"""

from shared.domain.decision import CLOCK_SLACK_SECONDS
from shared.domain.errors import InvalidMessage, LockstepError
from shared.domain.identity import identify
from shared.domain.message import Message
from shared.domain.reports import FAULT_TYPE
from shared.domain.wire import from_properties
from shared.engine.consume.consume import DEAD_LETTERED, Consumer
from shared.engine.consume.outcomes import Conflicting, Expired
from shared.engine.dispatch.deliver import Delivery
from shared.engine.operate.reject import Rejecter
from shared.ports import DeadLetter

DAY_SECONDS = 24 * 3600.0
# Of one run; the next one takes more.
LETTERS_MAX = 100
# How the broker calls the reason of what lay in a queue for as long as that keeps anything.
EXPIRED = "TTLExpiredException"


class DeadLetters:
    """Ends the dead letters of the app's own queues, and of what feeds them, in its own region."""

    def __init__(self, consumer: Consumer, rejecter: Rejecter, delivery: Delivery) -> None:
        self.consumer = consumer
        self.worker = consumer.worker
        self.rejecter = rejecter
        self.bus = delivery.bus
        self.queue = delivery.queues.here
        self.errors = delivery.queues.errors
        topics = self.worker.policy.input_topics
        self.paths = (self.queue, *(f"{topic}/Subscriptions/{self.queue}" for topic in topics))

    async def sweep(self) -> int:
        """Return how many dead letters were ended.

        What fails in one place keeps none from another: the first failure is raised at the end.
        """
        ended, failures = 0, list[LockstepError]()
        for path in self.paths:
            try:
                ended += await self.bus.end_dead_letters(
                    self.worker.owner.region, path, LETTERS_MAX, self.end
                )
            except LockstepError as error:
                failures.append(error)
        if failures:
            raise failures[0]
        return ended

    async def end(self, letter: DeadLetter) -> bool:
        """Return whether the letter has come to its end, so that it may be removed."""
        # A crash before it is removed means that it is looked at again. The journal then knows it,
        # and a report has the same id.
        said = (letter.session, letter.properties, letter.body)
        given_up = f"{DEAD_LETTERED}: {letter.reason}"
        try:
            try:
                known = identify(
                    self.worker.handlers,
                    letter.properties,
                    letter.body,
                    letter.session,
                    letter.enqueued_at,
                )
                message = from_properties(known, letter.body)
            except InvalidMessage as error:
                await self.rejecter.reject_unreadable(*said, f"{given_up}; {error}")
                return True
            refused = await self.consume(message, letter)
            if refused is not None:
                await self.rejecter.reject(*said, f"{given_up}; {refused}")
        except LockstepError as error:
            self.worker.failure_log.add("ending a dead letter", self.queue, error)
            return False
        return True

    def age_of(self, letter: DeadLetter) -> float:
        """Return for how long the broker has had a letter, right to the hour."""
        if letter.enqueued_at is None:
            return 0.0
        return self.worker.clock.today() - letter.enqueued_at.timestamp() - CLOCK_SLACK_SECONDS

    async def consume(self, message: Message, letter: DeadLetter) -> str | None:
        """Consume a letter like any message; return why where no journal takes it."""
        age, kept = self.age_of(letter), self.worker.policy.copies_seconds
        if message.number is not None and age > kept:
            # Ended sessions are kept for as long as a queue keeps copies. This one lay longer among
            # the dead letters, so the session that took it may be gone, and its numbers used anew.
            began = await self.worker.journal.session_age(message.session)
            if began is None or began < age:
                days = f"{kept / DAY_SECONDS:g} days"
                return f"it is over {days} old, and its session began later, or is not there"
        try:
            outcome = await self.consumer.consume(message, letter=letter)
        except InvalidMessage as error:
            return str(error)
        return outcome.reason if isinstance(outcome, Conflicting | Expired) else None

    async def renew_reports(self) -> int:
        """Return how many reports that expired in the error queue were removed or put back.

        What a reader outside failed to take stays among the dead letters. Raises as `Bus` does.
        """
        return await self.bus.end_dead_letters(
            self.worker.owner.region, self.errors, LETTERS_MAX, self.renew
        )

    async def renew(self, letter: DeadLetter) -> bool:
        """Return whether a report is over, or was put back for as long again, and may be removed.

        It is over when somebody decided about it, and a copy of a fault when its session goes on.
        """
        try:
            report = from_properties(letter.properties, letter.body, may_be_own=True)
            if not letter.reason.startswith(EXPIRED):
                return False
            decided = await self.worker.journal.repetition(report.session, report.id)
            is_over = decided is not None and decided.is_done
            if not is_over and report.type == FAULT_TYPE:
                head = await self.worker.read_head(report.session)
                is_over = head is None or head.halt is None
            if not is_over:
                # Before it is removed: a crash in between makes two, which are listed as one.
                await self.bus.send(self.worker.owner.region, self.errors, [report])
        except LockstepError as error:
            self.worker.failure_log.add("renewing a report", self.errors, error)
            return False
        return True
