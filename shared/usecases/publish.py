"""Number messages and send them to every region; what one region misses is owed, not lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shared.domain.errors import InvalidMessage, TooLarge
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox
from shared.domain.producer import Draft, ProducerOptions
from shared.ports import Journal
from shared.usecases.deliver import Delivery
from shared.usecases.ledgers import Ledgers
from shared.usecases.owe import owe_missing
from shared.usecases.turns import Turns


@dataclass(frozen=True, slots=True)
class Published:
    """The messages with their numbers.

    `owed` counts the copies of newly sent messages that are owed to regions out of reach.
    """

    messages: tuple[Message, ...]
    owed: int

    @property
    def sent(self) -> int:
        """How many messages are safe."""
        return len(self.messages)


type Hear = Callable[[Published], None]


def nobody(_: Published) -> None:
    """Nobody wants to hear of it."""


class Producer:
    """Publishes to sessions: one operation at a time per session, many sessions at once."""

    def __init__(self, journal: Journal, delivery: Delivery, queue: str) -> None:
        self.journal = journal
        self.delivery = delivery
        self.queue = queue
        self.ledgers = Ledgers(journal, delivery, queue)
        self.turns = Turns()

    async def publish(
        self,
        session: str,
        drafts: Sequence[Draft],
        options: ProducerOptions,
        hear: Hear = nobody,
    ) -> Published:
        """Bind numbers to the drafts and store both, then send them.

        Calling again with the same drafts after any failure gives the same numbers, and the bytes
        stored first are what is sent. What a failure left unsent goes out before anything newer.
        `hear` is called the moment the messages are safe, even if the call is cancelled after that.
        Raises what `Ledgers.bind` raises; OutcomeUnknown when no region surely has the messages:
        they keep their numbers and will be sent; TooLarge, naming them, for messages that a queue
        smaller than usual refused: voids have taken their numbers.
        """
        if not drafts:
            raise InvalidMessage("nothing to send")
        async with self.turns.of(session):
            try:
                return await self.publish_in_turn(session, drafts, options, hear)
            except BaseException:
                self.ledgers.known.pop((session, options.producer_group_id), None)
                raise

    async def agree(self, session: str, options: ProducerOptions) -> None:
        """Hold the caller's starting number against the ledger; nothing is numbered.

        What an earlier operation left unsent goes out first. Raises InvalidClientState or
        ProducerDisconnected, and what `Ledgers.current` raises.
        """
        async with self.turns.of(session):
            await self.ledgers.current(session, options)

    async def publish_in_turn(
        self, session: str, drafts: Sequence[Draft], options: ProducerOptions, hear: Hear
    ) -> Published:
        """Bind, then send what is fresh; messages that are known are in some region already."""
        numbered = await self.ledgers.bind(session, drafts, options)
        if not numbered.fresh:
            known = Published(numbered.messages, owed=0)
            hear(known)
            return known
        left = await self.ledgers.pay(
            options.producer_group_id,
            self.ledgers.owing_for(session, numbered),
            safe=lambda left: hear(published(numbered.messages, left)),
        )
        if left.refused:
            raise TooLarge(f"no queue takes {dict(left.refused)}; what else was sent is safe")
        return published(numbered.messages, left)

    async def send(self, messages: Sequence[Message]) -> Published:
        """Send messages of one session that carry consecutive numbers of one group.

        Success means each message is in every region's queue, or in one while the others' copies
        are owed in the journal. Raises InvalidMessage for mixed sessions or broken numbering,
        OutcomeUnknown when no region surely has them: send the same again.
        """
        require_consecutive(messages)
        async with self.turns.of(messages[0].session):
            return await self.send_in_turn(tuple(messages))

    async def send_in_turn(self, messages: tuple[Message, ...]) -> Published:
        """Send to all regions; owe what is missing, if at least one region has the messages."""
        outbox = self.delivery.to_every_region(self.queue, messages)
        reached = await self.delivery.deliver(outbox)
        session = messages[0].session
        return published(messages, await owe_missing(self.journal, session, outbox, reached))


def published(messages: tuple[Message, ...], left: Outbox) -> Published:
    """What is told of messages of which some copies may be left to send."""
    return Published(messages, owed=len(left.regions) * len(left.messages))


def require_consecutive(messages: Sequence[Message]) -> None:
    """Raise InvalidMessage unless the messages continue one another in one session and group."""
    if not messages:
        raise InvalidMessage("nothing to send")
    for before, after in pairwise(messages):
        number = require_number(before)
        expected = replace(number, sequence=number.sequence + 1)
        if after.session != before.session or require_number(after) != expected:
            raise InvalidMessage(f"message {after.id!r} does not continue {before.id!r}")
    require_number(messages[0])


def require_number(message: Message) -> Number:
    """The message's number; a message without one is refused by name."""
    if message.number is None:
        raise InvalidMessage(f"message {message.id!r} carries no producer number")
    return message.number
