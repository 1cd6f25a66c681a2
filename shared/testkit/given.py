"""The messages that a team gives its handlers, and how they are numbered."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from shared.domain.message import Message, Number, derived_id

GROUP = "given"
SENT_AT = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Given:
    """One message; those of a session are numbered in the order in which they are given."""

    session: str
    type: str
    body: bytes
    time: str = SENT_AT
    reply_to: str | None = None


def given(
    session: str,
    message_type: str,
    body: Mapping[str, Any] | BaseModel,
    *,
    time: str = SENT_AT,
    reply_to: str | None = None,
) -> Given:
    """A message for a session. `time` is the sender's, which handlers see as `context.now`."""
    if isinstance(body, BaseModel):
        return Given(session, message_type, body.model_dump_json().encode(), time, reply_to)
    return Given(session, message_type, json.dumps(dict(body)).encode(), time, reply_to)


def numbered(messages: Sequence[Given]) -> list[Message]:
    """The messages as a producer would send them."""
    sent: dict[str, int] = {}
    return [in_turn(message, sent) for message in messages]


def in_turn(message: Given, sent: dict[str, int]) -> Message:
    """A message with its session's next number."""
    sequence = sent.get(message.session, 0)
    sent[message.session] = sequence + 1
    return Message(
        id=derived_id(GROUP, message.session, str(sequence)),
        session=message.session,
        type=message.type,
        body=message.body,
        number=Number(GROUP, 0, sequence),
        time=message.time,
        reply_to=message.reply_to,
    )


def described(message: Message) -> str:
    """A given message, as people would say which one it is."""
    place = message.number.sequence + 1 if message.number else 0
    return f"message {place} of {message.session!r} ({message.type})"
