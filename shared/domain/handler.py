"""What a team writes: handlers of a state and a message, and what they may use.

A handler takes the session's state, the message's body and a Context, and returns the new state, or
a Handled with outputs. Only an effectful or idempotent handler may touch a clock, a random source
or the network; for all of them the Context hands out ids, randomness and a time that are the same
whenever the same message is handled again.
"""

import hashlib
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from pydantic import BaseModel

from shared.domain.errors import InvalidBody, UnknownType
from shared.domain.message import Message, derive_id
from shared.domain.outbox import DestinationBatch


class Context:
    """Ids, randomness and time that depend on the message alone, and what was captured once."""

    def __init__(self, message: Message, captured: Mapping[str, Any] | None = None) -> None:
        self.message = message
        self.values = dict(captured or {})
        self._ids = 0

    def new_id(self) -> str:
        """A fresh id; the n-th one of a message is the same in every run."""
        self._ids += 1
        return derive_id(self.message.session, self.message.id, "id", str(self._ids))

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

    def captured[T](self, name: str, look: Callable[[], T]) -> T:
        """What `look` gave when the message was first processed, kept in its entry.

        For what the message does not say, such as a price list or today's date. The value must be
        JSON; a tuple comes back as a list. Before the entry is committed a new attempt calls `look`
        again.
        """
        if name not in self.values:
            # As it will be read back, so that a later run sees nothing else.
            self.values[name] = json.loads(json.dumps(look(), allow_nan=False))
        # A copy: what the handler does to it is not what was captured.
        value: T = deepcopy(self.values[name])
        return value

    def reply(self, message_type: str, body: BaseModel) -> "Output":
        """An answer to the message's sender; raises InvalidBody where it asked for none."""
        if self.message.reply_to is None:
            raise InvalidBody(f"message {self.message.id!r} asks for no answer")
        session = self.message.reply_session or self.message.session
        return Output(message_type, body, session, to=self.message.reply_to, ordered=False)


@dataclass(frozen=True, slots=True)
class Output:
    """A message a handler wants sent: for another session, or for its own when none is named.

    `to` names another queue, or a topic, than the app's output queue. Ordered outputs are numbered
    per destination and session, so that their receiver recognises a gap; unordered ones are not.
    """

    type: str
    body: BaseModel
    session: str | None = None
    to: str | None = None
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Handled[S: BaseModel]:
    """A handler's whole result: the new state and the outputs, in the order of sending.

    `answer` is kept in the entry for the sender of a command; see engine/sagas/steps.py.
    """

    state: S
    outputs: tuple[Output, ...] = ()
    answer: BaseModel | None = None


class Kind(StrEnum):
    """What a handler may do, and so how its messages are kept from acting twice."""

    PURE = "pure"  # depends on state, message and Context only; outputs are stored with the entry
    DETERMINISTIC = "deterministic"  # pure, and outputs are made again by re-running, not stored
    EFFECTFUL = "effectful"  # calls the outside: the session is claimed while it runs
    IDEMPOTENT = "idempotent"  # may run any number of times; no journal, no state


class OnFault(StrEnum):
    """What a session does after a message of a type has failed for good."""

    HALT = "halt"  # later messages wait until a person resolves the fault
    SKIP = "skip"  # later messages go on; the fault stays visible


class NoState(BaseModel):
    """The state of a session whose handlers keep none."""


@dataclass(frozen=True, slots=True)
class HandlerInput:
    """What a handler starts from: the state, the next output numbers, and what was captured."""

    state: Mapping[str, Any] = field(default_factory=dict)
    produced: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    captured: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """What running a handler gave, ready for the journal.

    The batches' empty queue name stands for the app's own output queue.
    """

    state: Mapping[str, Any]
    batches: tuple[DestinationBatch, ...]
    produced: Mapping[str, Mapping[str, int]]
    captured: Mapping[str, Any]
    answer: Mapping[str, Any] | None = None


type Returned = BaseModel | Handled[Any]
type Handle = Callable[[Any, Any, Context], Returned | Awaitable[Returned]]


@dataclass(frozen=True, slots=True)
class Handler:
    """One message type: its body's model, its session's state model and the function between.

    `attempts` is how often an effectful or idempotent handler is run before its message is a fault;
    a pure one would fail again, so it is run once.
    """

    message_type: str
    state: type[BaseModel]
    body: type[BaseModel]
    handle: Handle
    on_fault: OnFault = OnFault.HALT
    kind: Kind = Kind.PURE
    attempts: int = 3

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"handler of {self.message_type!r}: attempts must be 1 or more")


@dataclass(frozen=True)
class Handlers:
    """The handlers an application has, by message type."""

    by_type: dict[str, Handler] = field(default_factory=dict)

    def register[H: Handle](
        self,
        message_type: str,
        *,
        body: type[BaseModel],
        state: type[BaseModel] = NoState,
        on_fault: OnFault = OnFault.HALT,
        kind: Kind = Kind.PURE,
        attempts: int = 3,
    ) -> Callable[[H], H]:
        """Decorate a function as the handler of a type; a second one for it is a ValueError."""

        def add(handle: H) -> H:
            self.add(Handler(message_type, state, body, handle, on_fault, kind, attempts))
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

    def kind_of(self, message_type: str) -> Kind:
        """The kind of a type's handler; a type without one is pure: it becomes a fault."""
        handler = self.by_type.get(message_type)
        return handler.kind if handler else Kind.PURE

    @classmethod
    def joined(cls, parts: Iterable["Handlers"]) -> "Handlers":
        """All handlers of several modules; a type in two of them is a ValueError."""
        whole = cls()
        for handler in (handler for part in parts for handler in part.by_type.values()):
            whole.add(handler)
        return whole
