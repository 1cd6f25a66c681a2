"""Number messages and send them to every region; what one region misses stays pending, not lost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from shared.domain.errors import InvalidMessage, TooLarge
from shared.domain.message import Message, Number
from shared.domain.outbox import Outbox, PendingOutbox
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.dispatch.deliver import Delivery
from shared.engine.dispatch.dispatch import keep_missing
from shared.engine.publish.ledgers import LedgerBook
from shared.engine.publish.session_locks import SessionLocks
from shared.ports import Journal


@dataclass(frozen=True, slots=True)
class Published:
    """The messages with their numbers.

    `pending` counts the copies of newly sent messages that wait for regions out of reach.
    """

    messages: tuple[Message, ...]
    pending: int

    @property
    def sent(self) -> int:
        """How many messages are safe."""
        return len(self.messages)


type PublishedListener = Callable[[Published], None]


def ignore(_: Published) -> None:
    """The listener of callers that wait for the answer."""


class Producer:
    """Publishes to sessions: one operation at a time per session, many sessions at once."""

    def __init__(self, journal: Journal, delivery: Delivery, queue: str) -> None:
        self.journal = journal
        self.delivery = delivery
        self.queue = queue
        self.ledgers = LedgerBook(journal, delivery, queue)
        self.locks = SessionLocks()

    async def publish(
        self,
        session: str,
        drafts: Sequence[Draft],
        options: ProducerOptions,
        notify: PublishedListener = ignore,
    ) -> Published:
        """Bind numbers to the drafts and store both, then send them.

        Calling again with the same drafts after any failure gives the same numbers, and the bytes
        stored first are what is sent. What a failure left unsent goes out before anything newer.
        `notify` is called the moment the messages are safe, even if the call is cancelled then.
        Raises what `LedgerBook.bind` raises; OutcomeUnknown when no region surely has the messages:
        they keep their numbers and will be sent; TooLarge, naming them, for messages that a queue
        smaller than usual refused: tombstones have taken their numbers.
        """
        if not drafts:
            raise InvalidMessage("nothing to send")
        async with self.locks.of(session):
            try:
                return await self.publish_in_turn(session, drafts, options, notify)
            except BaseException:
                self.ledgers.remembered.pop((session, options.producer_group_id), None)
                raise

    async def agree(self, session: str, options: ProducerOptions) -> None:
        """Hold the caller's starting number against the ledger; nothing is numbered.

        What an earlier operation left unsent goes out first. Raises InvalidClientState or
        ProducerDisconnected, and what `LedgerBook.current` raises.
        """
        async with self.locks.of(session):
            await self.ledgers.current(session, options)

    async def publish_in_turn(
        self,
        session: str,
        drafts: Sequence[Draft],
        options: ProducerOptions,
        notify: PublishedListener,
    ) -> Published:
        """Bind, then send what is fresh; all other messages are in some region already."""
        numbered = await self.ledgers.bind(session, drafts, options)
        if not numbered.fresh:
            published = Published(numbered.messages, pending=0)
            notify(published)
            return published
        outbox = self.delivery.address_all(self.queue, numbered.fresh)
        left = await self.ledgers.deliver(
            options.producer_group_id,
            # `bind` has stored it together with the ledger.
            PendingOutbox(session, outbox),
            notify=lambda left: notify(count_pending(numbered.messages, left)),
        )
        if left.refused:
            raise TooLarge(f"no queue takes {dict(left.refused)}; what else was sent is safe")
        return count_pending(numbered.messages, left)

    async def send(self, messages: Sequence[Message]) -> Published:
        """Send messages of one session that carry consecutive numbers of one group.

        Success means each message is in every region's queue, or in one while the others' copies
        are pending in the journal. Raises InvalidMessage for mixed sessions or broken numbering,
        OutcomeUnknown when no region surely has them: send the same again.
        """
        require_consecutive(messages)
        async with self.locks.of(messages[0].session):
            return await self.send_in_turn(tuple(messages))

    async def send_in_turn(self, messages: tuple[Message, ...]) -> Published:
        """Send to all regions; what is missing stays pending, if one region has the messages."""
        outbox = self.delivery.address_all(self.queue, messages)
        reached = await self.delivery.deliver(outbox)
        session = messages[0].session
        left = await keep_missing(self.journal, session, outbox, reached)
        return count_pending(messages, left)


def count_pending(messages: tuple[Message, ...], left: Outbox) -> Published:
    """Published messages of which some copies may be left to send."""
    return Published(messages, pending=len(left.regions) * len(left.messages))


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
