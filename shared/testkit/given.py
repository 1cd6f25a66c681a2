"""The messages that a team gives its handlers, how they are numbered, and what is said of them."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from shared.domain.message import Message, Number, derive_id
from shared.engine.handle.handle import encode_canonically
from shared.testkit.memory_store import EPOCH_SECONDS

GROUP = "given"
SENT_AT = datetime.fromtimestamp(EPOCH_SECONDS, UTC).isoformat()


class Found(AssertionError):
    """A handler does not keep what its kind promises, or a fault changed what it gives."""


@dataclass(frozen=True, slots=True)
class Given:
    """One message; those of a session are numbered in the order in which they are given.

    An `unnumbered` one is told from a copy by its id alone, and taken in the order of arrival.
    """

    session: str
    type: str
    body: bytes
    time: str = SENT_AT
    reply_to: str | None = None
    unnumbered: bool = False


def given(
    session: str,
    message_type: str,
    body: Mapping[str, Any] | BaseModel,
    *,
    time: str | datetime = SENT_AT,
    reply_to: str | None = None,
    unnumbered: bool = False,
) -> Given:
    """A message for a session. `time` is the sender's, which handlers see as `context.now`.

    As text it is by ISO 8601; where it has no zone it is in UTC.

    Raises NotStorable for a model, and ValueError for a mapping, that JSON does not keep whole.
    """
    if isinstance(body, BaseModel):
        text = encode_canonically(body, f"the body of {message_type!r}")
    else:
        text = json.dumps(dict(body), allow_nan=False).encode()
    sent = time.isoformat() if isinstance(time, datetime) else time
    return Given(session, message_type, text, sent, reply_to, unnumbered)


def as_sent(messages: Sequence[Given]) -> list[Message]:
    """Messages with ids of their own and, but for unnumbered ones, their sessions' numbers."""
    sent: list[Message] = []
    counts: Counter[str] = Counter()
    for place, one in enumerate(messages):
        identity, number = derive_id(GROUP, str(place), one.session), None
        if not one.unnumbered:
            number = Number(GROUP, 0, counts[one.session])
            counts[one.session] += 1
        sent.append(
            Message(identity, one.session, one.type, one.body, number, one.time, one.reply_to)
        )
    return sent


def in_words(message: Message) -> str:
    place = f" {message.number.sequence + 1}" if message.number else ""
    return f"message{place} of {message.session!r} ({message.type})"
