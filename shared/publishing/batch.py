"""A batch of one session's messages that surely fit into one operation."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum, auto

from shared.domain.errors import AlreadyPublished, InvalidMessage, TooLarge
from shared.domain.message import require_id
from shared.domain.producer import ProducerOptions
from shared.publishing.message import SessionMessage
from shared.storage.limits import (
    OPERATION_BYTES_MAX,
    OPERATION_MESSAGES_MAX,
    measure_operation,
    widest_number,
)


class Lock(Enum):
    """Whether a batch takes messages."""

    OPEN = auto()
    SENDING = auto()
    PUBLISHED = auto()


class MessageBatch:
    """Messages for one session. It locks while it is sent; a failure opens it again.

    Sizes are what the messages take in the journal, measured with the widest number there is.
    """

    def __init__(
        self, session: str, options: ProducerOptions, max_size_in_bytes: int | None = None
    ) -> None:
        require_id("session", session)
        limit = OPERATION_BYTES_MAX if max_size_in_bytes is None else max_size_in_bytes
        if not 0 < limit <= OPERATION_BYTES_MAX:
            raise InvalidMessage(f"a batch has 1 to {OPERATION_BYTES_MAX} bytes, not {limit}")
        self.session = session
        self.max_size_in_bytes = limit
        self.size_in_bytes = 0
        self.number = widest_number(options.producer_group_id, options.owner_level)
        self.messages: list[SessionMessage] = []
        self.lock = Lock.OPEN

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def starting_published_sequence_number(self) -> int | None:
        """The number of the first message, once the batch was published; the others follow it.

        A message that was published before, under the same id, keeps the number it had.
        """
        return self.messages[0].published_sequence_number if self.messages else None

    def try_add(self, message: SessionMessage) -> bool:
        """Add a message unless the batch is too full for it.

        Raises AlreadyPublished for a batch that is being sent, or was, or such a message; TooLarge
        for what no batch of this size takes.
        """
        if self.lock is not Lock.OPEN:
            raise AlreadyPublished(f"nothing can be added: the batch is {self.lock.name.lower()}")
        message.require_unpublished()
        size = self.size_with_number(message)
        if size > self.max_size_in_bytes:
            raise TooLarge(f"a message of {size} bytes, the batch takes {self.max_size_in_bytes}")
        if self.size_in_bytes + size > self.max_size_in_bytes:
            return False
        if len(self.messages) == OPERATION_MESSAGES_MAX:
            return False
        self.messages.append(message)
        self.size_in_bytes += size
        return True

    def add(self, message: SessionMessage) -> None:
        """As `try_add`, and raises TooLarge where that answers False."""
        if not self.try_add(message):
            raise TooLarge(f"the batch is full with {len(self)} messages")

    def size_with_number(self, message: SessionMessage) -> int:
        """What the message will take at most."""
        return measure_operation([message.draft.in_session(self.session, self.number)])

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the batch while it is sent; it stays locked if its messages were published."""
        self.lock = Lock.SENDING
        try:
            yield
        finally:
            is_published = self.starting_published_sequence_number is not None
            self.lock = Lock.PUBLISHED if is_published else Lock.OPEN
