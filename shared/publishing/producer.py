"""The idempotent producer: numbered, ordered, deduplicated publishing to sessions, for asyncio."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from shared.domain.errors import InvalidClientState, InvalidMessage, ProducerClosed
from shared.domain.message import require_id
from shared.domain.producer import ProducerOptions
from shared.engine.publish.publish import Producer, Published
from shared.engine.publish.session_locks import SessionLocks
from shared.publishing.batch import MessageBatch
from shared.publishing.message import SessionMessage
from shared.publishing.options import IdempotentProducerOptions
from shared.publishing.properties import PartitionPublishingProperties, said_before

type Outgoing = MessageBatch | Iterable[SessionMessage]


class IdempotentProducer:
    """Publishes to sessions (the partitions): one operation at a time per session, many at once.

    It keeps a small record per session it has sent to, as long as it lives. `opening.py` opens one
    from settings.
    """

    def __init__(self, producer: Producer, options: IdempotentProducerOptions) -> None:
        self.producer = producer
        self.options = options
        self.turns = SessionLocks()
        self.published: dict[str, PartitionPublishingProperties] = {}
        self.agreed: set[str] = set()
        self.broken: dict[str, InvalidClientState] = {}
        self.running = 0
        self.is_closed = False
        self.idle = asyncio.Event()
        self.idle.set()

    async def get_partition_publishing_properties(
        self, session: str
    ) -> PartitionPublishingProperties:
        """Group, owner level and last published number of a session, as this producer knows it."""
        self.require_open()
        return self.published.get(session) or said_before(session, self.options.said_of(session))

    async def create_batch(
        self, session: str, max_size_in_bytes: int | None = None
    ) -> MessageBatch:
        """An empty batch for a session. Raises InvalidMessage for an impossible session or size."""
        self.require_open()
        return MessageBatch(session, self.options.for_session(session), max_size_in_bytes)

    async def send(self, outgoing: Outgoing, *, session: str | None = None) -> Published:
        """Publish a batch, or messages to a session; every message then has its number.

        After a failure, or a cancellation that came before the messages were safe, none has one.
        The numbers that were tried stay bound to the content that was tried: it is sent before
        anything newer, by the next operation or by the sweep, and the same ids sent again find
        them. Raises

        - AlreadyPublished, InvalidMessage, TooLarge, ContentConflict, NumbersExhausted: nothing was
          numbered;
        - ProducerDisconnected: a higher owner level has taken over the session;
        - InvalidClientState: fatal for the session, every later operation raises it again;
        - Unavailable, OutcomeUnknown: send the same again.
        """
        messages = outgoing.messages if isinstance(outgoing, MessageBatch) else list(outgoing)
        target = target_of(outgoing, session)
        with self.operation():
            async with self.turns.of(target):
                for message in messages:
                    message.require_unpublished()
                locked = outgoing.locked() if isinstance(outgoing, MessageBatch) else nullcontext()
                with locked:
                    options = await self.agreed_options(target)
                    return await self.publish(target, messages, options)

    async def agreed_options(self, session: str) -> ProducerOptions:
        """A session's options, after the number the caller keeps was held against the ledger once.

        Raises InvalidClientState, now and ever after, where they contradict each other.
        """
        if session in self.broken:
            raise InvalidClientState(f"open a new producer: {self.broken[session]}")
        options = self.options.for_session(session)
        if options.starting_sequence_number is not None and session not in self.agreed:
            try:
                await self.producer.agree(session, options)
            except InvalidClientState as error:
                self.broken[session] = error
                raise
            self.agreed.add(session)
        return replace(options, starting_sequence_number=None)

    async def publish(
        self, session: str, messages: Sequence[SessionMessage], options: ProducerOptions
    ) -> Published:
        """Publish in turn, and take note of the numbers the moment they are certain."""

        def hear(published: Published) -> None:
            for message, sent in zip(messages, published.messages, strict=True):
                if sent.number is not None:
                    message.mark_published(sent.number.sequence)
            self.learn(session, options, messages)

        drafts = [message.draft for message in messages]
        return await self.producer.publish(session, drafts, options, hear)

    def learn(
        self, session: str, options: ProducerOptions, messages: Sequence[SessionMessage]
    ) -> None:
        """Remember what was published last; a repetition of older messages moves nothing back."""
        before = self.published.get(session)
        last = before.last_published_sequence_number if before else None
        numbers = [m.published_sequence_number for m in messages] + [last]
        self.published[session] = PartitionPublishingProperties(
            session,
            options.producer_group_id,
            options.owner_level,
            max(number for number in numbers if number is not None),
        )

    async def close(self) -> None:
        """Refuse new operations and let the running ones end. Doing so twice is harmless."""
        self.is_closed = True
        await self.idle.wait()

    @contextmanager
    def operation(self) -> Iterator[None]:
        """Count an operation as running, so that closing can wait for it."""
        self.require_open()
        self.running += 1
        self.idle.clear()
        try:
            yield
        finally:
            self.running -= 1
            if not self.running:
                self.idle.set()

    def require_open(self) -> None:
        """Raise ProducerClosed after `close`."""
        if self.is_closed:
            raise ProducerClosed("the producer was closed")


def target_of(outgoing: Outgoing, session: str | None) -> str:
    """The one session of an operation; raises InvalidMessage for none, or for two."""
    if isinstance(outgoing, MessageBatch):
        if session not in (None, outgoing.session):
            raise InvalidMessage(f"a batch of session {outgoing.session!r} sent to {session!r}")
        return outgoing.session
    if session is None:
        raise InvalidMessage("messages without a batch need a session")
    require_id("session", session)
    return session
