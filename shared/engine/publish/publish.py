"""Number messages and send them to every region; what one region misses stays pending, not lost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from shared.domain.errors import InvalidMessage, TooLarge
from shared.domain.message import Message, Number
from shared.domain.outbox import HERE, Delivered, Outbox, PendingOutbox
from shared.domain.producer import Draft, Ledger, ProducerOptions
from shared.domain.trace import sample_trace
from shared.engine.dispatch.deliver import Delivery
from shared.engine.dispatch.dispatch import keep_missing
from shared.engine.publish.ledgers import LedgerBook
from shared.engine.publish.readiness import Readiness
from shared.engine.publish.session_locks import SessionLocks
from shared.storage.journal import Journal


@dataclass(frozen=True, slots=True)
class Published:
    """The messages with their numbers.

    `regions` surely have every message that was newly sent, and `missing` says of each other region
    why it does not have them yet; `pending` counts its copies. Both regions and reasons are empty
    where nothing had to be sent.
    """

    messages: tuple[Message, ...]
    pending: int = 0
    regions: tuple[str, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """The number of messages that are safe."""
        return len(self.messages)


type PublishedListener = Callable[[Published], None]


@dataclass(eq=False)
class Producer:
    """Publishes to sessions: one operation at a time per session, many sessions at once."""

    journal: Journal
    delivery: Delivery
    replaced_regions: Sequence[str] = ()
    # Of the messages without a trace so many get one, from 0 to 1.
    trace_ratio: float = 0.0
    # Settings that only apps and producers of the same application have.
    kept_for: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.readiness = Readiness(
            self.journal, self.delivery, self.replaced_regions, self.kept_for
        )
        self.ledgers = LedgerBook(self.journal, self.delivery)
        self.locks = SessionLocks()

    async def publish(
        self,
        session: str,
        drafts: Sequence[Draft],
        options: ProducerOptions,
        notify: PublishedListener = lambda _: None,
        *,
        keep_seconds: int = 0,
    ) -> Published:
        """Bind numbers to the drafts and store both, then send them.

        Calling again with the same drafts after any failure gives the same numbers, and the bytes
        stored first are what is sent. With `keep_seconds` that is so for as long, for at most 90
        drafts; without, for as long as the ledger remembers their ids. What a failure left unsent
        goes out before anything newer. `notify` is called the moment the messages are safe, even if
        the call is cancelled then. Raises what `Readiness.required` and `LedgerBook.bind` raise;
        OutcomeUnknown when no region surely has the messages: they keep their numbers and will be
        sent; TooLarge, naming them, for messages that a queue smaller than usual refused:
        tombstones have taken their numbers.
        """
        if not drafts:
            raise InvalidMessage("nothing to send")
        group = options.producer_group_id
        drafts = [self.traced(draft, session, group, draft.id) for draft in drafts]
        async with self.locks.of(session), self.readiness.required():
            try:
                return await self.publish_in_turn(session, drafts, options, notify, keep_seconds)
            except BaseException:
                self.ledgers.remembered.pop((session, group), None)
                raise

    async def agree(self, session: str, options: ProducerOptions) -> None:
        """Hold the caller's starting number against the ledger; nothing is numbered.

        What an earlier operation left unsent goes out first. Raises InvalidClientState or
        ProducerDisconnected, and what `Readiness.required` and `LedgerBook.current` raise.
        """
        async with self.locks.of(session), self.readiness.required():
            await self.ledgers.current(session, options)

    async def look(self, session: str, group: str) -> Ledger | None:
        """The ledger of a group in a session, up to what is published; None where there is none.

        One read, and one query where there is a ledger; nothing is changed. Raises Misconfigured as
        `Readiness.require_regions`, Unavailable, and OutcomeUnknown.
        """
        await self.readiness.require_regions()
        return await self.ledgers.published(session, group)

    async def publish_in_turn(
        self,
        session: str,
        drafts: Sequence[Draft],
        options: ProducerOptions,
        notify: PublishedListener,
        keep_seconds: int,
    ) -> Published:
        """Bind, then send what is fresh; all other messages are in some region already."""
        numbered = await self.ledgers.bind(session, drafts, options, keep_seconds=keep_seconds)
        if not numbered.fresh:
            published = Published(numbered.messages)
            notify(published)
            return published
        outbox = self.delivery.address_all(HERE, numbered.fresh)
        left = await self.ledgers.deliver(
            options.producer_group_id,
            # `bind` has stored it together with the ledger.
            PendingOutbox(session, outbox),
            notify=lambda left: notify(self.describe(numbered.messages, left)),
        )
        if left.refused:
            raise TooLarge(f"no queue takes {dict(left.refused)}; what else was sent is safe")
        return self.describe(numbered.messages, left)

    async def send(self, messages: Sequence[Message]) -> Published:
        """Send messages of one session that carry consecutive numbers of one group.

        Success means each message is in every region's queue, or in one while the others' copies
        are pending in the journal. Raises InvalidMessage for mixed sessions, broken numbering or a
        body that no queue takes, Misconfigured where nothing can be sent before a person changes
        something, OutcomeUnknown when no region surely has them: send the same again.
        """
        require_consecutive(messages)
        for message in messages:
            message.require_body_within(self.delivery.queues.body_bytes_max)
        session = messages[0].session
        sent = tuple(self.traced(one, *one.identity_parts) for one in messages)
        async with self.locks.of(session), self.readiness.required():
            outbox = self.delivery.address_all(HERE, sent)
            done = Delivered(await self.delivery.deliver(outbox))
            left = await keep_missing(self.journal, session, outbox, done)
            return self.describe(sent, left)

    def traced[M: (Draft, Message)](self, one: M, *parts: str) -> M:
        """The message with a trace, as often as the ratio says, which follows from these parts."""
        if not self.trace_ratio or one.traceparent:
            return one
        return replace(one, traceparent=sample_trace(self.trace_ratio, *parts))

    def describe(self, messages: tuple[Message, ...], left: Outbox) -> Published:
        """Published messages of which some copies may be left to send."""
        missing = {
            region: left.blocked.get(region, {}).get(HERE) or self.delivery.explain(region, HERE)
            for region in self.delivery.regions
            if region in left.regions or region in left.blocked
        }
        taken = tuple(region for region in self.delivery.regions if region not in missing)
        return Published(messages, len(missing) * len(left.messages), taken, missing)


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
