"""The idempotent producer: numbered, ordered, deduplicated publishing to sessions, for asyncio."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from shared.domain.errors import (
    InvalidClientState,
    InvalidMessage,
    LockstepError,
    OutcomeUnknown,
    ProducerClosed,
)
from shared.domain.message import refuse_reserved, require_text
from shared.domain.producer import ProducerOptions
from shared.engine.publish.publish import Producer, Published
from shared.engine.publish.session_locks import SessionLocks
from shared.publishing.message import MessageBatch, SessionMessage
from shared.publishing.options import IdempotentProducerOptions, PartitionPublishingProperties

type Outgoing = MessageBatch | Iterable[SessionMessage]


class IdempotentProducer:
    """Publishes to sessions (the partitions).

    Operations of one session run one after the other, those of different sessions side by side.
    The producer keeps a small record of every session it has sent to for as long as it lives.
    Programs open one with `open_idempotent_producer`.
    """

    def __init__(self, producer: Producer, options: IdempotentProducerOptions) -> None:
        self.producer = producer
        self.options = options.with_assigned_group()
        self.turns = SessionLocks()
        self.published: dict[str, PartitionPublishingProperties] = {}
        self.verified: set[str] = set()
        self.broken: dict[str, InvalidClientState] = {}
        self.running = 0
        self.is_closed = False
        self.idle = asyncio.Event()
        self.idle.set()

    async def get_partition_publishing_properties(
        self, session: str
    ) -> PartitionPublishingProperties:
        """Group, owner level and last published number of a session.

        What this producer has published there it knows itself. Before that the ledger says it, also
        where another producer of the group has a higher owner level: one read, and one query where
        the group has a ledger. Raises Misconfigured, Unavailable or OutcomeUnknown as `send` does.
        """
        with self.track_operation():
            if session in self.published:
                return self.published[session]
            options = self.options.resolve(session)
            ledger = await self.producer.look(session, options.producer_group_id)
            return self.options.describe(session, ledger)

    async def create_batch(
        self, session: str, max_size_in_bytes: int | None = None
    ) -> MessageBatch:
        """An empty batch for a session. Raises InvalidMessage for an impossible session or size."""
        self.require_open()
        most = self.producer.delivery.queues.body_bytes_max
        return MessageBatch(session, self.options.resolve(session), max_size_in_bytes, most)

    async def send(self, outgoing: Outgoing, *, session: str | None = None) -> Published:
        """Publish a batch, or messages to a session. Afterwards every message has its number.

        After a failure, or a cancellation that came before the messages were safe, no message has
        a number. The numbers of the attempt stay bound to its content: the next operation or the
        sweep sends that content before anything newer, and messages sent again under the same ids
        get the same numbers. What is transient is tried again as the retry options say. Raises

        - AlreadyPublished, InvalidMessage, TooLarge, ContentConflict, NumbersExhausted: nothing was
          numbered;
        - ProducerDisconnected: a higher owner level has taken over the session;
        - InvalidClientState: fatal for the session; every later operation raises it again;
        - Unavailable, OutcomeUnknown: send the same again.
        """
        messages = outgoing.messages if isinstance(outgoing, MessageBatch) else list(outgoing)
        target = resolve_session(outgoing, session)
        with self.track_operation():
            async with self.turns.of(target):
                for message in messages:
                    message.require_unpublished()
                lock = outgoing.lock() if isinstance(outgoing, MessageBatch) else nullcontext()
                with lock:
                    return await self.try_to_send(target, messages)

    async def try_to_send(self, session: str, messages: Sequence[SessionMessage]) -> Published:
        """Publish, as often as the retry options say while what fails is transient.

        Nothing else is sent to the session meanwhile, so every try has the same numbers.
        """
        retry, tried = self.options.retry_options, 1
        while True:
            try:
                return await self.publish(session, messages)
            except LockstepError as error:
                if not error.is_transient or tried > retry.maximum_retries:
                    raise
                asked_for = getattr(error, "retry_after_seconds", None) or 0.0
            await self.producer.delivery.clock.sleep(max(asked_for, retry.delay_after(tried)))
            tried += 1

    async def verify_options(self, session: str) -> ProducerOptions:
        """A session's options, after the caller's starting number was once compared to the ledger.

        Raises InvalidClientState, now and in every later call, if the two contradict each other.
        """
        if session in self.broken:
            raise InvalidClientState(f"open a new producer: {self.broken[session]}")
        options = self.options.resolve(session)
        if options.starting_sequence_number is not None and session not in self.verified:
            try:
                await self.producer.agree(session, options)
            except InvalidClientState as error:
                self.broken[session] = error
                raise
            self.verified.add(session)
        return replace(options, starting_sequence_number=None)

    async def publish(self, session: str, messages: Sequence[SessionMessage]) -> Published:
        """One try. The numbers are noted once they are certain, even if the try ends later."""
        safe: list[Published] = []

        def note_numbers(published: Published) -> None:
            safe.append(published)
            for message, sent in zip(messages, published.messages, strict=True):
                if sent.number is not None:
                    message.mark_published(sent.number.sequence)
            self.remember_last(session, messages)

        drafts, limit = (
            [one.draft for one in messages],
            self.options.retry_options.try_timeout_seconds,
        )
        try:
            async with asyncio.timeout(limit):
                options = await self.verify_options(session)
                return await self.producer.publish(session, drafts, options, note_numbers)
        except TimeoutError:
            if safe:
                return safe[0]
            raise OutcomeUnknown(
                f"no answer within {limit} s; what was numbered keeps its numbers and will be sent"
            ) from None

    def remember_last(self, session: str, messages: Sequence[SessionMessage]) -> None:
        """Remember the last published number. Repeating older messages does not lower it."""
        options = self.options.resolve(session)
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
        """Refuse new operations and wait until the running ones have ended. May be called twice."""
        self.is_closed = True
        await self.idle.wait()

    @contextmanager
    def track_operation(self) -> Iterator[None]:
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
        if self.is_closed:
            raise ProducerClosed("the producer was closed")


def resolve_session(outgoing: Outgoing, session: str | None) -> str:
    """The one session of an operation. Raises InvalidMessage if there is none, or if two differ."""
    if isinstance(outgoing, MessageBatch):
        if session not in (None, outgoing.session):
            raise InvalidMessage(f"a batch of session {outgoing.session!r} sent to {session!r}")
        return outgoing.session
    if session is None:
        raise InvalidMessage("messages without a batch need a session")
    require_text("session", session)
    refuse_reserved(session, "")
    return session
