"""Keep messages beside the journal until their turn comes, one under each number.

Who finds the place taken is a copy, or another message with a used number, or a producer that
another one has fenced: the higher owner level has the place.
"""

from dataclasses import replace

from shared.domain import entries
from shared.domain.batch import Appended
from shared.domain.errors import TooLarge
from shared.domain.journal import Entry, Status
from shared.domain.message import Message
from shared.ports import Held
from shared.usecases.claim import Claims
from shared.usecases.coverage import Coverage
from shared.usecases.outcomes import AlreadyDone, Outcome, Parked, conflicting, met, outcome_of


class Parker:
    """One worker's way to the places beside the journals."""

    def __init__(self, claims: Claims, coverage: Coverage) -> None:
        self.claims = claims
        self.processor = claims.processor
        self.store = claims.committer.store
        self.clock = claims.committer.clock
        self.patience = claims.committer.patience
        self.coverage = coverage

    async def park(self, head: Entry | None, message: Message) -> Outcome | None:
        """Keep the message beside the journal; None when another worker was first."""
        step = await self.processor.step(head, message)
        appended = await self.processor.append(head, entries.parked(step))
        return await self.parked_as(head, message, appended)

    async def park_beside(self, held: Held, message: Message) -> Outcome | None:
        """Let the message wait for a claim; what does not fit beside it waits here."""
        try:
            appended = await self.claims.park_beside(held, message)
        except TooLarge:
            await self.clock.sleep(self.patience.poll_seconds)
            return None
        return await self.parked_as(held.entry, message, appended)

    async def parked_under(self, head: Entry | None, message: Message) -> Message | None:
        """A message parked under the same number: a copy, or a fenced producer's."""
        number = message.number
        if head is None or number is None or not head.parked.get(number.group):
            return None
        return await self.store.parked(message.session, number)

    async def parked_as(
        self, head: Entry | None, message: Message, appended: Appended
    ) -> Outcome | None:
        """What became of parking; None when another worker was first."""
        match appended:
            case Appended.CREATED:
                return Parked()
            case Appended.PARKED_BEFORE:
                return await self.parked_before(head, message)
            case Appended.SEEN_BEFORE:
                return await self.seen_before(message)
            case Appended.TAKEN | Appended.ORPHANED:
                return None

    async def parked_before(self, head: Entry | None, message: Message) -> Outcome | None:
        """Something is parked under the message's number: a copy, another, or a fenced one."""
        parked = await self.parked_under(head, message)
        if head is None or parked is None:
            return None
        level = level_of(message)
        if level_of(parked) >= level and parked.digest == message.digest:
            return AlreadyDone()
        if is_other(parked, message):
            return conflicting(message)
        if head.status is Status.WORKING:
            await self.clock.sleep(self.patience.poll_seconds)
        elif level_of(parked) > level:
            return await self.refuse(head, message, level_of(parked))
        else:
            step = replace(await self.processor.step(head, parked), from_parked=True)
            await self.processor.refuse(step, level)
        return None

    async def refuse(self, head: Entry | None, message: Message, level: int) -> Outcome | None:
        """Say in the journal that the message's producer was fenced."""
        step = await self.processor.step(head, message)
        return outcome_of(await self.processor.refuse(step, level))

    async def seen_before(self, message: Message) -> Outcome | None:
        """Whether an un-numbered message could not be committed because it was seen."""
        if message.number is not None:
            return None
        digest = await self.coverage.look(message)
        return None if digest is None else met(message, digest)


def level_of(message: Message) -> int:
    """The owner level of a numbered message."""
    return message.number.level if message.number else 0


def is_other(parked: Message, message: Message) -> bool:
    """Whether the same producer used the same number for other content."""
    return level_of(parked) == level_of(message) and parked.digest != message.digest
