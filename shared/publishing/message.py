"""The messages that a program publishes, each with content and number, and batches of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import Enum, auto

from shared.domain.errors import AlreadyPublished, InvalidMessage, TooLarge
from shared.domain.handler import TIME_MAX
from shared.domain.message import (
    BODY_BYTES_MAX,
    SEQUENCE_MAX,
    Number,
    refuse_reserved,
    require_text,
)
from shared.domain.producer import Draft, ProducerOptions
from shared.domain.wire import read_traceparent
from shared.storage import limits

# Stands for the session while a message is checked before its session is known.
ANY_SESSION = "session"


class SessionMessage:
    """Content that is published once, under an id of the caller's that is the same on every try.

    `published_sequence_number` is None until the message was published, and stays None after a
    failure. `time`, `reply_to`, `reply_session` and `traceparent` are those of Message. `delay` is
    how much later than the preferred region the others see their copies, where it is another time
    than the settings say. Raises InvalidMessage for content that could not be sent to any session,
    and for an impossible delay; NotAllowed for a type that only the app sends.
    """

    def __init__(
        self,
        message_id: str,
        message_type: str,
        body: bytes | str,
        *,
        time: str | None = None,
        reply_to: str | None = None,
        reply_session: str | None = None,
        traceparent: str | None = None,
        delay: timedelta | None = None,
    ) -> None:
        content = body.encode() if isinstance(body, str) else bytes(body)
        if traceparent is not None and read_traceparent(traceparent) is None:
            raise InvalidMessage(f"this is no traceparent: {traceparent!r}")
        if delay is not None and not timedelta(0) <= delay <= TIME_MAX:
            raise InvalidMessage(f"the delay is from 0 to {TIME_MAX.days} days, not {delay}")
        self.draft = Draft(
            message_id,
            message_type,
            content,
            time,
            reply_to,
            reply_session,
            traceparent=traceparent,
            delay=None if delay is None else delay.total_seconds(),
        )
        self.draft.in_session(ANY_SESSION)
        refuse_reserved(ANY_SESSION, message_type)
        self._published: int | None = None

    @property
    def published_sequence_number(self) -> int | None:
        return self._published

    def require_unpublished(self) -> None:
        if self._published is not None:
            name = f"message {self.draft.id!r}"
            raise AlreadyPublished(f"{name} was published as number {self._published}")

    def mark_published(self, sequence: int) -> None:
        """Remember the number. Only a producer calls this."""
        self._published = sequence

    def __repr__(self) -> str:
        return f"SessionMessage(id={self.draft.id!r}, number={self._published})"


class BatchState(Enum):
    OPEN = auto()
    SENDING = auto()
    PUBLISHED = auto()


class MessageBatch:
    """Messages for one session that surely fit into one operation.

    Nothing can be added while the batch is sent, nor once it was published; a failure opens it
    again. Sizes are bytes in the journal, with the longest number that there can be.
    """

    def __init__(
        self,
        session: str,
        options: ProducerOptions,
        max_size_in_bytes: int | None = None,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        require_text("session", session)
        refuse_reserved(session, "")
        limit = limits.OPERATION_BYTES_MAX if max_size_in_bytes is None else max_size_in_bytes
        if not 0 < limit <= limits.OPERATION_BYTES_MAX:
            longest = limits.OPERATION_BYTES_MAX
            raise InvalidMessage(f"a batch has 1 to {longest} bytes, not {limit}")
        self.session = session
        self.max_size_in_bytes = limit
        self.body_bytes_max = body_bytes_max
        self.size_in_bytes = 0
        self.number = Number(options.producer_group_id, options.owner_level, SEQUENCE_MAX)
        self.messages: list[SessionMessage] = []
        self.state = BatchState.OPEN

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def starting_published_sequence_number(self) -> int | None:
        """The number of the first message once the batch was published; the others follow it.

        A message that was published before under the same id keeps the number it had.
        """
        return self.messages[0].published_sequence_number if self.messages else None

    def try_add(self, message: SessionMessage) -> bool:
        """Add a message and return True, or return False if the batch is too full for it.

        Raises AlreadyPublished if the batch is being sent or was published, or if the message was;
        TooLarge for a message that no batch of this size can take, InvalidMessage for a body that
        no queue takes.
        """
        if self.state is not BatchState.OPEN:
            raise AlreadyPublished(f"nothing can be added: the batch is {self.state.name.lower()}")
        message.require_unpublished()
        added = message.draft.in_session(self.session, self.number)
        added.require_body_within(self.body_bytes_max)
        size = limits.measure_operation([added])
        if size > self.max_size_in_bytes:
            raise TooLarge(f"a message of {size} bytes, the batch takes {self.max_size_in_bytes}")
        if self.size_in_bytes + size > self.max_size_in_bytes:
            return False
        if len(self.messages) == limits.OPERATION_MESSAGES_MAX:
            return False
        self.messages.append(message)
        self.size_in_bytes += size
        return True

    def add(self, message: SessionMessage) -> None:
        """Add a message like `try_add`, but raise TooLarge instead of returning False."""
        if not self.try_add(message):
            raise TooLarge(f"the batch is full with {len(self)} messages")

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Lock the batch while it is sent. It stays locked if its messages were published."""
        self.state = BatchState.SENDING
        try:
            yield
        finally:
            is_published = self.starting_published_sequence_number is not None
            self.state = BatchState.PUBLISHED if is_published else BatchState.OPEN
