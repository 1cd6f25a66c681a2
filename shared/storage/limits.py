"""The sizes that fit into stores and queues, measured before anything is numbered or written."""

import json
from collections.abc import Iterable, Iterator, Sequence

from shared.domain.errors import TooLarge
from shared.domain.message import Message, stored_bytes
from shared.domain.outbox import DestinationBatch
from shared.storage.documents import encode_message

# What Cosmos DB takes in one transactional batch.
BATCH_BYTES_MAX = 2 * 1024 * 1024
BATCH_OPERATIONS_MAX = 100
# A producer's operation is kept in the journal until it is sent: one document of at most 2 MB,
# written in one batch with the ledger, which remembers every message of it.
OPERATION_BYTES_MAX = 1_500_000
OPERATION_MESSAGES_MAX = 1_000
# Above this an entry's outputs are staged: an entry and its state must fit into one batch.
INLINE_BYTES_MAX = 400_000
# What one staged document holds at most, unless a single message is larger.
STAGED_BYTES_MAX = 800_000
# So many of them an entry adopts: each is an operation in its batch, which holds others as well.
STAGED_DOCUMENTS_MAX = 80
# What a message takes beside its body, about.
MESSAGE_OVERHEAD_BYTES = 400


def require_fits(messages: Sequence[Message]) -> None:
    """Raise TooLarge where the messages are more than one operation of a producer takes."""
    if len(messages) > OPERATION_MESSAGES_MAX:
        raise TooLarge(f"{len(messages)} messages at once, over {OPERATION_MESSAGES_MAX}")
    size = measure_operation(messages)
    if size > OPERATION_BYTES_MAX:
        raise TooLarge(f"the messages take {size} bytes, over {OPERATION_BYTES_MAX}: split them")


def measure_operation(messages: Iterable[Message]) -> int:
    """Return the bytes that messages take in the journal, as the SDK of Cosmos DB writes them."""
    return sum(len(json.dumps(encode_message(message))) for message in messages)


def fits_entry(messages: Sequence[Message]) -> bool:
    """Say whether an entry can hold these outputs itself."""
    return measure_outputs(messages) <= INLINE_BYTES_MAX


def measure_outputs(messages: Sequence[Message]) -> int:
    """About how much room messages take in a document, in bytes."""
    return sum(stored_bytes(message.body) + MESSAGE_OVERHEAD_BYTES for message in messages)


def split_outputs(batches: Sequence[DestinationBatch]) -> Iterator[DestinationBatch]:
    """The same messages in the same order, in batches that each fit into a document."""
    for batch in batches:
        kept: list[Message] = []
        size = 0
        for message in batch.messages:
            added = measure_outputs([message])
            if kept and size + added > STAGED_BYTES_MAX:
                yield DestinationBatch(batch.queue, tuple(kept))
                kept, size = [], 0
            kept.append(message)
            size += added
        yield DestinationBatch(batch.queue, tuple(kept))
