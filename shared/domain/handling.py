"""What a team writes: pure handlers of a state and a message, and how one is run.

A handler takes the session's state, the message's body and a Context, and returns the new state, or
a Handled with outputs. It must not touch a clock, a random source or the network: the Context hands
out ids, randomness and a time that are the same whenever the same message is handled again.
"""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from pydantic import BaseModel, ValidationError

from shared.domain.errors import InvalidBody, UnknownType
from shared.domain.journal import Json
from shared.domain.message import Message, Number, derived_id


class Context:
    """Ids, randomness and time that depend on the message alone."""

    def __init__(self, message: Message) -> None:
        self.message = message
        self._ids = 0

    def new_id(self) -> str:
        """A fresh id; the n-th one of a message is the same in every run."""
        self._ids += 1
        return derived_id(self.message.session, self.message.id, "id", str(self._ids))

    @cached_property
    def random(self) -> random.Random:
        """Randomness seeded by SHA-256 of the message's identity, equal in every process."""
        seed = hashlib.sha256(f"{self.message.session}\0{self.message.id}".encode()).digest()
        return random.Random(int.from_bytes(seed, "big"))  # noqa: S311 - must repeat, not surprise

    @property
    def now(self) -> datetime:
        """The sender's time; raises InvalidBody where the message carries none."""
        if self.message.time is None:
            raise InvalidBody(f"message {self.message.id!r} carries no time")
        return datetime.fromisoformat(self.message.time)


@dataclass(frozen=True, slots=True)
class Output:
    """A message a handler wants sent: for another session, or for its own when none is named."""

    type: str
    body: BaseModel
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Handled[S: BaseModel]:
    """A handler's whole result: the new state and the outputs, in the order of sending."""

    state: S
    outputs: tuple[Output, ...] = ()


class OnFault(StrEnum):
    """What a session does after a message of a type has failed for good."""

    HALT = "halt"  # later messages wait until a person resolves the fault
    SKIP = "skip"  # later messages go on; the fault stays visible


type Handle = Callable[[Any, Any, Context], BaseModel | Handled[Any]]


@dataclass(frozen=True, slots=True)
class Handler:
    """One message type: its body's model, its session's state model and the function between."""

    message_type: str
    state: type[BaseModel]
    body: type[BaseModel]
    handle: Handle
    on_fault: OnFault = OnFault.HALT


@dataclass(frozen=True, slots=True)
class Result:
    """What running a handler gave, ready for the journal."""

    state: Json
    messages: tuple[Message, ...]
    produced: Mapping[str, int]


@dataclass(frozen=True)
class Handlers:
    """The handlers an application has, by message type."""

    by_type: dict[str, Handler] = field(default_factory=dict)

    def register[H: Handle](
        self,
        message_type: str,
        *,
        state: type[BaseModel],
        body: type[BaseModel],
        on_fault: OnFault = OnFault.HALT,
    ) -> Callable[[H], H]:
        """Decorate a function as the handler of a type; a second one for it is a ValueError."""

        def add(handle: H) -> H:
            self.add(Handler(message_type, state, body, handle, on_fault))
            return handle

        return add

    def add(self, handler: Handler) -> None:
        """Add a handler; a second one for its type is a ValueError."""
        if handler.message_type in self.by_type:
            raise ValueError(f"two handlers for {handler.message_type!r}")
        self.by_type[handler.message_type] = handler

    def of(self, message_type: str) -> Handler:
        """The handler of a type, or UnknownType naming the known ones."""
        try:
            return self.by_type[message_type]
        except KeyError:
            known = ", ".join(sorted(self.by_type)) or "none"
            raise UnknownType(f"no handler for type {message_type!r}; known: {known}") from None

    @classmethod
    def joined(cls, parts: Iterable["Handlers"]) -> "Handlers":
        """All handlers of several modules; a type in two of them is a ValueError."""
        whole = cls()
        for handler in (h for part in parts for h in part.by_type.values()):
            whole.register(handler.message_type, state=handler.state, body=handler.body)(
                handler.handle
            )
        return whole


def run(handler: Handler, state: Json, produced: Mapping[str, int], message: Message) -> Result:
    """Run a handler on the state before the message. Pure: the same input gives the same bytes."""
    context = Context(message)
    before = handler.state.model_validate(state)
    answer = handler.handle(before, parse_body(handler, message), context)
    handled = answer if isinstance(answer, Handled) else Handled(answer)
    messages, numbers = numbered(message, handled.outputs, produced)
    return Result(handled.state.model_dump(mode="json"), messages, numbers)


def parse_body(handler: Handler, message: Message) -> BaseModel:
    """The body as the handler's model, or InvalidBody saying which field is wrong."""
    try:
        return handler.body.model_validate_json(message.body)
    except ValidationError as error:
        raise InvalidBody(f"message {message.id!r}: {summary(error)}") from error


def summary(error: ValidationError) -> str:
    """A validation error in one line: field and complaint, without the input."""
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors()
    )


def numbered(
    cause: Message, outputs: tuple[Output, ...], produced: Mapping[str, int]
) -> tuple[tuple[Message, ...], dict[str, int]]:
    """Outputs as numbered messages: this session is their producer group, so order survives."""
    numbers = dict(produced)
    messages = []
    for index, output in enumerate(outputs):
        target = output.session or cause.session
        sequence = numbers.get(target, 0)
        numbers[target] = sequence + 1
        messages.append(
            Message(
                id=derived_id(cause.session, cause.id, "output", str(index)),
                session=target,
                type=output.type,
                body=canonical(output.body),
                number=Number(group=f"session:{cause.session}", level=0, sequence=sequence),
                time=cause.time,
            )
        )
    return tuple(messages), numbers


def canonical(body: BaseModel) -> bytes:
    """A body as JSON with sorted keys and no spaces: equal models give equal bytes."""
    document = body.model_dump(mode="json")
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def fault_report(message: Message, reason: str) -> Message:
    """The copy of a faulted message for the error queue: everything it had, and why it failed."""
    number = message.number
    report = {
        "reason": reason,
        "message": {
            "id": message.id,
            "session": message.session,
            "type": message.type,
            "body": message.body.decode(),
            "time": message.time,
            "number": [number.group, number.level, number.sequence] if number else None,
        },
    }
    return Message(
        id=derived_id(message.session, message.id, "fault", message.digest),
        session=message.session,
        type="lockstep.fault",
        body=json.dumps(report, sort_keys=True, ensure_ascii=False).encode(),
        time=message.time,
    )
