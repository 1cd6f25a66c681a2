"""How much a producer may publish in one operation, measured before anything is numbered."""

import json
from collections.abc import Iterable, Sequence

from shared.domain.errors import TooLarge
from shared.domain.message import SEQUENCE_MAX, Message, Number
from shared.domain.stored_messages import message_json

# An operation is kept in the journal until it is sent: one document of at most 2 MB, written in one
# batch with the ledger, which remembers every message of it.
OPERATION_BYTES_MAX = 1_500_000
OPERATION_MESSAGES_MAX = 1_000
# A queue takes 1 MiB in all; beside the largest body there is room for this, as JSON.
ATTRIBUTES_BYTES_MAX = 32_000
# The widest number there can be, for measuring a message that has none yet.
WIDEST_SEQUENCE = SEQUENCE_MAX


def require_fits(messages: Sequence[Message]) -> None:
    """Raise TooLarge where the messages are more than one operation takes."""
    if len(messages) > OPERATION_MESSAGES_MAX:
        raise TooLarge(f"{len(messages)} messages at once, over {OPERATION_MESSAGES_MAX}")
    for message in messages:
        require_short_attributes(message)
    size = size_of(messages)
    if size > OPERATION_BYTES_MAX:
        raise TooLarge(f"the messages take {size} bytes, over {OPERATION_BYTES_MAX}: split them")


def require_short_attributes(message: Message) -> None:
    """Raise TooLarge where everything but the body is more than a queue has room for."""
    attributes = {name: value for name, value in message_json(message).items() if name != "body"}
    size = len(json.dumps(attributes))
    if size > ATTRIBUTES_BYTES_MAX:
        raise TooLarge(
            f"message {message.id!r} has {size} bytes beside its body, over {ATTRIBUTES_BYTES_MAX}"
        )


def size_of(messages: Iterable[Message]) -> int:
    """What the messages take in the journal, in bytes, as the Cosmos DB SDK writes them."""
    return sum(len(json.dumps(message_json(message))) for message in messages)


def widest(group: str, level: int) -> Number:
    """A number that no later one is wider than."""
    return Number(group, level, WIDEST_SEQUENCE)
