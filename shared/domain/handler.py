"""The handlers that a team writes, of a state and a message, and what they may use.

A handler takes the session's state, the message's body and a Context, and returns the new state, or
a Handled with outputs. Only an effectful or idempotent handler may touch a clock, a random source
or the network; for all of them the Context hands out ids, randomness and a time that are the same
whenever the same message is handled again.
"""

import hashlib
import inspect
import json
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache, cached_property
from typing import Any

from pydantic import BaseModel, RootModel

from shared.domain.errors import InvalidBody, NotAllowed, NotStorable, UnknownType
from shared.domain.journal import ModelVersion, WholeState
from shared.domain.message import OWN_TYPE_PREFIX, Message, derive_id, parse_moment, refuse_reserved
from shared.domain.outbox import HERE as HERE  # noqa: PLC0414 - stands beside Output for handlers
from shared.domain.outbox import OUTPUTS as OUTPUTS  # noqa: PLC0414 - as above
from shared.domain.outbox import DestinationBatch
from shared.domain.steps import AskOutside, OnUnknown, StepRequest, StepRunner
from shared.domain.values import differing

# What Cosmos DB keeps as it is: documents that are nested no deeper, and whole numbers up to here.
LEVELS_MAX = 128
WHOLE_NUMBER_MAX = 2**53
# The furthest ahead an output can be scheduled.
AFTER_MAX = timedelta(days=365)
# The longest delay of a copy and the longest lag: no copy may come after it was forgotten, which is
# after a week by default.
TIME_MAX = timedelta(days=1)
# So many reminders of a session wait at most: each of its entries names them.
REMINDERS_MAX = 100
MANY_DIGITS = re.compile(r"\d{16}")


class NotCaptured(LookupError):
    """A message that is run again asks for what was not looked up the first time."""


class Context:
    """Ids, randomness and time that depend on the message alone, and what was captured once.

    Handlers and plans are given one; a test of a plan makes one of a message. Without `looks_up`
    nothing is looked up any more: all that is known is in `captured`.
    """

    def __init__(
        self,
        message: Message,
        captured: Mapping[str, Any] | None = None,
        *,
        looks_up: bool = True,
        steps: StepRunner | None = None,
    ) -> None:
        self.message = message
        self.values = dict(captured or {})
        self.looks_up = looks_up
        self.steps = steps
        self.replied_to: str | None = None
        self._ids = 0

    def new_id(self) -> str:
        """A fresh id; the n-th one of a message is the same in every run."""
        self._ids += 1
        return derive_id(*self.message.identity_parts, "id", str(self._ids))

    @cached_property
    def random(self) -> random.Random:
        """Randomness seeded by SHA-256 of the message's identity, equal in every process."""
        seed = hashlib.sha256("\0".join(self.message.identity_parts).encode()).digest()
        return random.Random(int.from_bytes(seed, "big"))  # noqa: S311 - must repeat, not surprise

    @property
    def now(self) -> datetime:
        """The sender's time, in UTC; raises InvalidBody where the message carries none.

        A time that the sender wrote without a zone is UTC, wherever the machine stands.
        """
        if self.message.time is None:
            raise InvalidBody(f"message {self.message.id!r} carries no time")
        try:
            return parse_moment(self.message.time).astimezone(UTC)
        except (ValueError, OverflowError):
            raise InvalidBody(
                f"the time of message {self.message.id!r} is no ISO 8601 time of the years 1 to"
                f" 9999 in UTC: {self.message.time!r}"
            ) from None

    def captured[T](self, name: str, look: Callable[[], T]) -> T:
        """Return the value that `look` gave at first, which is kept in the message's entry.

        For what the message does not say, such as a price list or today's date. The value must be
        JSON; a tuple comes back as a list, and 12.0 as 12. A new attempt before the commit calls
        `look` again. Raises NotStorable, which says what of the value JSON would not give back.
        """
        if name not in self.values and not self.looks_up:
            raise NotCaptured(name)
        if name not in self.values:
            self.values[name] = keep_captured(name, look())
        # A copy: what the handler does to it is not what was captured.
        value: T = deepcopy(self.values[name])
        return value

    def step(
        self,
        name: str,
        call: Callable[..., Any],
        *arguments: Any,
        key: str | None = None,
        on_unknown: OnUnknown | AskOutside = OnUnknown.HALT,
        attempts: int = 3,
        seconds: float | None = None,
    ) -> Awaitable[Any]:
        """Call the outside as a step of the message, whose result is kept: to be awaited.

        `call(*arguments, key=...)` may be async. Once it has returned, its result is kept in the
        session's claim, and every later run of the handler, in any region, is given that and does
        not call again. The result must be JSON, as for `captured`; one is 800,000 bytes at most,
        and all of a message are 4 MiB. `key` is for the outside to recognise the step by, and the
        same in every run; without one it follows from the message and the name, which is another
        one for each step of a message.

        A call that raises NotDone did nothing: it is made again, `attempts` times in all, and then
        StepFailed is raised here, in this run and in every later one; where an earlier call with
        REPEAT may have happened, its message is a fault instead. A call that raises anything else,
        takes longer than `seconds`, or whose worker dies may have happened. `on_unknown` says what
        becomes of it: with HALT the session waits until a person says whether it happened, with
        REPEAT it is made again under the same key, and `ask(look_up)` asks the outside first. Where
        that does not help within `attempts`, a person decides.

        Steps may be asked for side by side. A handler that runs again has to ask for those that
        began, or its message is a fault. For async handlers of Kind.EFFECTFUL only; raises
        TypeError in any other, and ValueError for options that cannot work.
        """
        if self.steps is None:
            raise TypeError("steps are for async handlers of Kind.EFFECTFUL")
        if key is None:
            key = derive_id(*self.message.identity_parts, "step", name)
        request = StepRequest(name, call, arguments, key, on_unknown, attempts, seconds)
        self.steps.expect(request)
        return self.steps.run(request)

    def reply(self, message_type: str, body: BaseModel) -> "Output":
        """An answer to the message's sender; raises InvalidBody where it asked for none.

        A message whose answer is asked to a queue that the settings do not allow becomes a fault.
        """
        if self.message.reply_to is None:
            raise InvalidBody(f"message {self.message.id!r} asks for no answer")
        self.replied_to = self.message.reply_to
        session = self.message.reply_session or self.message.session
        return Output(message_type, body, session, to=self.message.reply_to, ordered=False)


@dataclass(frozen=True, slots=True)
class Output:
    """A message a handler wants sent: for another session, or for its own when none is named.

    It goes to the app's own queue where the app has a handler for its type, and to its output queue
    where it has none. `to` says otherwise: HERE is the app's own queue, OUTPUTS its output queue,
    and anything else the name of another queue or of a topic. Ordered outputs are numbered per
    destination and session, so that their receiver recognises a gap; unordered ones are not.

    With `after` the message becomes visible so much later than the sender's time of the message
    that is being handled, in each region, and is never numbered: what is sent meanwhile does not
    wait for it. Where it is for its own session and for HERE, it may have a name, `reminder`. A
    later entry of the session can then cancel it, or set it anew under that name; what was
    cancelled has no effect, though a pure handler may be called for it by a worker that does not
    know yet. `delay` is how much later than the preferred region the others see their copies,
    where it is another one than the type has. Raises ValueError for what does not go together.
    """

    type: str
    body: BaseModel
    session: str | None = None
    to: str | None = None
    ordered: bool = True
    after: timedelta | None = None
    reminder: str = ""
    delay: timedelta | None = None

    def __post_init__(self) -> None:
        require_time("the delay of an output", self.delay)
        if self.after is not None and not timedelta(0) < self.after <= AFTER_MAX:
            raise ValueError(f"an output is scheduled up to {AFTER_MAX.days} days ahead")
        if self.reminder and self.after is None:
            raise ValueError(f"the reminder {self.reminder!r} needs a time: `after`")


@dataclass(frozen=True, slots=True)
class Handled[S: BaseModel]:
    """A handler's whole result: the new state and the outputs, in the order of sending.

    `cancels` names reminders that are not wanted any more; one that the same result sets stays.
    `answer` is kept in the entry, for whoever asked. `alert` says why a person has to look at this:
    it is listed until somebody closes it. With `ends` the session has ended: its outputs still go
    out, its reminders are cancelled, and whatever comes after it is refused by name.
    """

    state: S
    outputs: tuple[Output, ...] = ()
    answer: BaseModel | None = None
    alert: str | None = None
    cancels: tuple[str, ...] = ()
    ends: bool = False


class Kind(StrEnum):
    """The kind of a handler says what it may do, and so how its messages act only once."""

    PURE = "pure"
    """It depends on state, message and Context only; its outputs are stored with the entry."""
    DETERMINISTIC = "deterministic"
    """It is pure, and its outputs are made again by running it again; they are not stored."""
    EFFECTFUL = "effectful"
    """It calls the outside: the session is claimed while it runs."""
    IDEMPOTENT = "idempotent"
    """It may run any number of times; it has no journal and no state."""


class OnFault(StrEnum):
    """The reaction of a session after a message of a type has failed for good."""

    HALT = "halt"
    """Later messages wait until a person resolves the fault."""
    SKIP = "skip"
    """Later messages go on; the fault stays visible."""


class Dispatch(StrEnum):
    """The ways in which the outputs of a type's messages leave, once they are committed."""

    IMMEDIATE = "immediate"
    """By the worker that has committed them, at once."""
    ASYNCHRONOUS = "asynchronous"
    """By the change feed or the sweep after the lag, or by the session's next message, if earlier:
    it needs them out of its way."""


class NoState(BaseModel):
    """The state of a session whose handlers keep none."""


type Upgrade = Callable[[dict[str, Any], int], BaseModel]


@dataclass(frozen=True, slots=True)
class StateModel:
    """A model of sessions' states, with the name and the version that entries record.

    A change after which the model would read a stored state otherwise than it was written needs a
    higher version and an `upgrade`: a pure function of a state as an older version stored it, and
    of that version, which returns the state as the model is now. The name is that of the class
    unless it is given, so that a class can be renamed. Raises ValueError for what cannot work.
    """

    model: type[BaseModel]
    version: int = 1
    upgrade: Upgrade | None = None
    name: str = ""

    def __post_init__(self) -> None:
        require_model("a state", self.model)
        if issubclass(self.model, RootModel):
            raise ValueError(f"a state has named fields, and {self.model.__name__} has none")
        required = [name for name, one in self.model.model_fields.items() if one.is_required()]
        if required:
            raise ValueError(
                f"the state model {self.model.__name__} needs a default for {', '.join(required)}:"
                " the first message of a session finds no state"
            )
        if self.version < 1 or (self.version > 1 and self.upgrade is None):
            raise ValueError(
                f"the state model {self.model.__name__} has version {self.version}: versions begin"
                " at 1, and a later one needs an upgrade"
            )
        if not self.name:
            object.__setattr__(self, "name", self.model.__name__)


def require_model(what: str, model: Any) -> None:
    """Raise ValueError for anything but a pydantic model."""
    if not isinstance(model, type) or not issubclass(model, BaseModel):
        raise ValueError(f"{what} is a pydantic model, not {getattr(model, '__name__', model)}")


@dataclass(frozen=True, slots=True)
class HandlerInput:
    """The input of a handler: state, next output numbers, and what was captured.

    `reminders` are those that wait, by name; `model` is the state's, where its entry recorded it.
    `base` is what a large state may be written as a change of. Without `looks_up` the handler gets
    nothing that is not in `captured`.
    """

    state: Mapping[str, Any] = field(default_factory=dict)
    produced: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    captured: Mapping[str, Any] = field(default_factory=dict)
    model: ModelVersion | None = None
    reminders: Mapping[str, str] = field(default_factory=dict)
    base: WholeState | None = None
    looks_up: bool = True


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The result of running a handler, ready for the journal.

    `replied_to` is the queue that its sender asked an answer to, where the handler gave one.
    `is_state_kept` says that the state is what it was before; `base` is that of the input. `ends`
    says that the session ends, and `silence` after how many quiet seconds it does.
    """

    state: Mapping[str, Any]
    batches: tuple[DestinationBatch, ...]
    produced: Mapping[str, Mapping[str, int]]
    captured: Mapping[str, Any]
    answer: Mapping[str, Any] | None = None
    alert: str | None = None
    replied_to: str | None = None
    state_bytes: int | None = field(default=None, compare=False)
    model: ModelVersion | None = None
    reminders: Mapping[str, str] = field(default_factory=dict)
    is_state_kept: bool = False
    base: WholeState | None = field(default=None, compare=False)
    ends: bool = False
    silence: int | None = None


def keep_captured(name: str, value: Any) -> Any:
    """A value as it will be read back, so that a later run sees nothing else.

    Raises NotStorable by the rule for values (values.py).
    """
    try:
        kept = json.loads(json.dumps(value, allow_nan=False), parse_float=read_decimal)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotStorable(f"what is captured as {name!r} is no JSON: {error}") from error
    for part, why in differing(value, kept, name, allowed={(tuple, list)}):
        raise NotStorable(f"what is captured as {part!r} is not kept by JSON: {why}")
    return kept


def read_decimal(text: str) -> float:
    """A decimal; a whole one is a whole number, which a store may make of it in a patch."""
    number = float(text)
    return int(number) if number.is_integer() and abs(number) <= WHOLE_NUMBER_MAX else number


def require_storable(document: Mapping[str, Any]) -> int:
    """The size of a document as JSON.

    Raises NotStorable where the store refuses it, or would change a number of it.
    """
    try:
        text = json.dumps(document, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise NotStorable(f"it cannot be stored: {error}") from error
    # Few documents have as many brackets or digits, so that nearly none is walked through.
    if text.count("{") + text.count("[") <= LEVELS_MAX and not MANY_DIGITS.search(text):
        return len(text)
    level: list[tuple[str, Any]] = [("", document)]
    for _ in range(LEVELS_MAX):
        inner = [
            (f"{place}.{name}" if place else str(name), value)
            for place, outer in level
            for name, value in (outer.items() if isinstance(outer, Mapping) else enumerate(outer))
        ]
        for place, value in inner:
            if isinstance(value, int) and abs(value) > WHOLE_NUMBER_MAX:
                raise NotStorable(
                    f"it cannot be stored: the whole number {place!r} is beyond 2^53, so keep it as"
                    " text"
                )
        level = [one for one in inner if isinstance(one[1], Mapping | list | tuple)]
        if not level:
            return len(text)
    raise NotStorable(f"it cannot be stored: it is nested deeper than {LEVELS_MAX} levels")


type Returned = BaseModel | Handled[Any]
type IdFrom = str | Callable[[Any], str | int]
type Handle = Callable[[Any, Any, Context], Returned | Awaitable[Returned]]


@dataclass(frozen=True, slots=True)
class Handler:
    """One message type: its body's model, its session's state model and the function between.

    `attempts` is how often an effectful or idempotent handler is run before its message is a fault;
    a pure one would fail again, so it is run once. `sessions` are the patterns of the sessions that
    the type is for, in which `*` stands for any characters. `answer` is the model of what it
    answers, where it says so. `delay` is how much later than the preferred region the others see
    the copies of what the app sends of this type; `dispatch` and `lag` say who sends the outputs of
    its messages, and how long they are left to their own worker. Where these are None, the settings
    say it. `id_from` is for senders that can set no id: the field of the body's JSON that is the
    message's id, or a function of the JSON that gives it. `is_ours` says that its code is not the
    application's but Lockstep's own, which ends no worker. A session that had a message of the
    type ends by itself once nothing has come for it for as long as `ends_after`. Where the app
    keeps what handlers took, it does so without the bodies of a type that is not `archived`. Raises
    ValueError for what cannot work.
    """

    message_type: str
    state: StateModel
    body: type[BaseModel]
    handle: Handle
    on_fault: OnFault = OnFault.HALT
    kind: Kind = Kind.PURE
    attempts: int = 3
    sessions: tuple[str, ...] = ()
    answer: type[BaseModel] | None = None
    delay: timedelta | None = None
    dispatch: Dispatch = Dispatch.IMMEDIATE
    lag: timedelta | None = None
    id_from: IdFrom | None = None
    ends_after: timedelta | None = None
    archived: bool = True
    is_ours: bool = False

    def __post_init__(self) -> None:
        require_time(f"handler of {self.message_type!r}: the delay", self.delay)
        require_time(f"handler of {self.message_type!r}: the lag", self.lag)
        if self.attempts < 1:
            raise ValueError(f"handler of {self.message_type!r}: attempts must be 1 or more")
        if self.ends_after is not None and self.ends_after < timedelta(seconds=1):
            raise ValueError(f"handler of {self.message_type!r}: ends_after must be 1 s or more")
        if self.message_type.startswith(OWN_TYPE_PREFIX):
            raise ValueError(f"type {self.message_type!r} is reserved: {OWN_TYPE_PREFIX}* is ours")
        if "" in self.sessions:
            raise ValueError(f"handler of {self.message_type!r}: a pattern of sessions is empty")
        require_model(f"handler of {self.message_type!r}: a body", self.body)
        if self.answer is not None:
            require_model(f"handler of {self.message_type!r}: an answer", self.answer)
        require_signature(self.message_type, self.handle, "state", "body", "context")
        is_async = any(map(inspect.iscoroutinefunction, (self.handle, type(self.handle).__call__)))
        if is_async and self.kind in (Kind.PURE, Kind.DETERMINISTIC):
            raise ValueError(
                f"the {self.kind} handler of {self.message_type!r} must not be async: one that"
                " calls the outside is effectful or idempotent"
            )


def require_time(what: str, time: timedelta | None) -> None:
    """Raise ValueError for a time that is not from none to TIME_MAX."""
    if time is not None and not timedelta(0) <= time <= TIME_MAX:
        raise ValueError(f"{what} is from 0 to {TIME_MAX.total_seconds():g} s, not {time}")


def require_signature(message_type: str, handle: Callable[..., Any], *parameters: str) -> None:
    """Raise ValueError unless the function can be called with these."""
    signature = inspect.signature(handle)
    try:
        signature.bind(*parameters)
    except TypeError as error:
        raise ValueError(
            f"the handler of {message_type!r} is called with {', '.join(parameters)}, and takes"
            f" {signature}: {error}"
        ) from None


@cache
def session_pattern(pattern: str) -> re.Pattern[str]:
    """The regular expression of a pattern in which `*` stands for any characters."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


@dataclass(frozen=True)
class Handlers:
    """The handlers an application has, by message type."""

    by_type: dict[str, Handler] = field(default_factory=dict)

    def register[H: Handle](  # noqa: PLR0913 - each is an option of its type
        self,
        message_type: str,
        *,
        body: type[BaseModel],
        state: type[BaseModel] | StateModel = NoState,
        on_fault: OnFault = OnFault.HALT,
        kind: Kind = Kind.PURE,
        attempts: int = 3,
        sessions: str | Iterable[str] = (),
        answer: type[BaseModel] | None = None,
        delay: timedelta | None = None,
        dispatch: Dispatch = Dispatch.IMMEDIATE,
        lag: timedelta | None = None,
        id_from: IdFrom | None = None,
        ends_after: timedelta | None = None,
        archived: bool = True,
    ) -> Callable[[H], H]:
        """Decorate a function as the handler of a type.

        `sessions` says which sessions the type is for: a pattern such as "account:*", or several.
        A message of it for another session is refused by name, and so is one of a type without
        patterns for a session of these, unless it has the same state model or none. An effectful
        or idempotent handler is run `attempts` times before its message is a fault. With `answer`
        the handler answers with this model, or not at all, and the API says so. `delay` is how much
        later than the preferred region the others see copies of the type, and `lag` how long its
        outputs are left to their own worker, a day at most. `id_from` names the field of the body
        that is the id, for senders that can set none, or is a function that gets it. With
        `ends_after` sessions that had a message of the type end after so long a silence. With
        `archived` false no archive has the bodies of the type's messages. Raises ValueError for a
        second handler of the type, and for what can never work: a function of other parameters,
        one that is async and pure, or a state model without defaults.
        """
        fitting = (sessions,) if isinstance(sessions, str) else tuple(sessions)
        declared = state if isinstance(state, StateModel) else StateModel(state)

        def add(handle: H) -> H:
            own = (
                on_fault,
                kind,
                attempts,
                fitting,
                answer,
                delay,
                Dispatch(dispatch),
                lag,
                id_from,
                ends_after,
                archived,
            )
            self.add(Handler(message_type, declared, body, handle, *own))
            return handle

        return add

    def add(self, handler: Handler) -> None:
        """Add a handler; adding the same again changes nothing.

        Raises ValueError for another one of its type, and where another handler's state has the
        same model name with another version or upgrade.
        """
        if self.by_type.get(handler.message_type, handler) != handler:
            raise ValueError(f"two handlers for {handler.message_type!r}")
        for other in (one.state for one in self.by_type.values()):
            if other.name == handler.state.name and (other.version, other.upgrade) != (
                handler.state.version,
                handler.state.upgrade,
            ):
                raise ValueError(
                    f"the state model {other.name!r} is declared as version {other.version} and as"
                    f" version {handler.state.version}: declare it once, or name one of the two"
                )
        self.by_type[handler.message_type] = handler

    def of(self, message_type: str, session: str | None = None) -> Handler:
        """The handler of a type, and of a session where one is given.

        Raises UnknownType naming the known ones, and NotAllowed where the type is not for the
        session: its patterns do not fit, or it has none and others with another state model do.
        """
        handler = self.by_type.get(message_type)
        if handler is None:
            refuse_reserved("", message_type)
            known = ", ".join(sorted(self.by_type)) or "none"
            raise UnknownType(f"no handler for type {message_type!r}; known: {known}")
        if session is None or any(session_pattern(p).fullmatch(session) for p in handler.sessions):
            return handler
        if handler.sessions:
            fits = " or ".join(handler.sessions)
            raise NotAllowed(f"type {message_type!r} is for {fits}, not for session {session!r}")
        for other in self.by_type.values():
            if handler.state == other.state or handler.state.model is NoState:
                continue
            if any(session_pattern(p).fullmatch(session) for p in other.sessions):
                raise NotAllowed(f"type {message_type!r} is not for session {session!r}")
        return handler

    @property
    def delays(self) -> dict[str, float]:
        """The delays of types that have one of their own, in seconds."""
        given = {name: one.delay for name, one in self.by_type.items()}
        return {name: one.total_seconds() for name, one in given.items() if one is not None}

    def lag_of(self, types: Iterable[str], usual: float) -> float:
        """The seconds for which the outputs of such messages are left to their own worker."""
        known = (self.by_type[name].lag for name in types if name in self.by_type)
        lags = [usual if lag is None else lag.total_seconds() for lag in known]
        return max(lags, default=usual)

    def archives(self, message_type: str) -> bool:
        """Say whether an archive may have the bodies of a type, as one without a handler does."""
        handler = self.by_type.get(message_type)
        return handler is None or handler.archived

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
