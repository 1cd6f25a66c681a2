"""Check that pure and deterministic handlers give the same bytes for the same input, always."""

import builtins
import io
import json
import os
import random
import secrets
import socket
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from types import CodeType, FrameType
from typing import Any

from shared.domain.handler import (
    Context,
    Handler,
    HandlerInput,
    HandlerResult,
    Handlers,
    Kind,
    OnFault,
)
from shared.domain.message import Message
from shared.domain.outbox import HERE
from shared.engine.handle import handle
from shared.engine.handle.raised import describe_error
from shared.storage.documents import encode_batch
from shared.testkit.given import Found, in_words

# More runs than this are outputs that call each other.
RUNS_MAX = 1_000

NOW = "use context.now, the sender's time"
IDS = "use context.new_id()"
RANDOMNESS = "use context.random"
OUTSIDE = "look it up with context.captured(...), or declare the handler effectful"
ZONE = "context.now is in UTC: convert it to a zone that is named, or compare it as it is"
# Far apart, so that one is elsewhere wherever the machine stands; no file is read for them.
ZONES = ("EAST-13", "WEST+11")
HASHES = "hash() of text differs between processes: use hashlib"

FUNCTIONS: dict[Any, str] = {
    time.time: NOW,
    time.time_ns: NOW,
    time.monotonic: NOW,
    time.monotonic_ns: NOW,
    time.perf_counter: NOW,
    time.localtime: NOW,
    time.gmtime: NOW,
    os.urandom: RANDOMNESS,
    os.getpid: OUTSIDE,
    io.open: OUTSIDE,
    builtins.hash: HASHES,
}
CLOCK_METHODS = {"now", "utcnow", "today"}
PYTHON: dict[CodeType, tuple[str, str]] = {
    uuid.uuid1.__code__: ("uuid.uuid1()", IDS),
    uuid.uuid4.__code__: ("uuid.uuid4()", IDS),
    secrets.token_bytes.__code__: ("secrets.token_bytes()", RANDOMNESS),
}
# The hidden generator behind the functions of the module random.
SHARED_RANDOM = random.random.__self__  # type: ignore[attr-defined]

type ComparableResult = dict[str, Any]


@dataclass(frozen=True, slots=True)
class HandlerRun:
    """One run of a handler, beside handlers of other types, `here`."""

    handler: Handler
    before: HandlerInput
    message: Message
    result: ComparableResult
    here: Collection[str] = ()


def checked_runs(handlers: Handlers, messages: Iterable[Message]) -> list[HandlerRun]:
    """The runs of the messages in turn, and of their outputs for this app, each checked.

    Sessions of other kinds of handlers are left out from there on: nobody can foresee their state.
    Raises Found.
    """
    runs: list[HandlerRun] = []
    befores: dict[str, HandlerInput | None] = {}
    waiting = deque(messages)
    while waiting:
        message = waiting.popleft()
        before = befores.setdefault(message.session, HandlerInput())
        handler = handlers.by_type.get(message.type)
        if before is None or handler is None or handler.kind not in (Kind.PURE, Kind.DETERMINISTIC):
            befores[message.session] = None
        elif (checked := checked_run(handler, before, message, handlers.by_type)) is not None:
            run, result = checked
            befores[message.session] = HandlerInput(
                result.state, result.produced, model=result.model
            )
            runs.append(run)
            waiting.extend(m for b in result.batches if b.queue == HERE for m in b.messages)
            if len(runs) > RUNS_MAX:
                raise Found(f"{in_words(message)} goes on for ever: its outputs come back here")
        elif handler.on_fault is OnFault.HALT:
            befores[message.session] = None
    for run in reversed(runs):
        require_same_run(run, repeated(run), "when it runs again after the others")
    return runs


def checked_run(
    handler: Handler, before: HandlerInput, message: Message, here: Collection[str]
) -> tuple[HandlerRun, HandlerResult] | None:
    """Run a handler under watch, and once more; None where it fails, else what came of it."""
    with recorded_calls() as calls:
        try:
            result = handle.run_pure(handler, before, message, here)
        except Exception:
            return None
    if calls.found:
        called, advice = calls.found[0]
        raise Found(f"the {handler.kind} handler of {in_words(message)} calls {called}: {advice}")
    require_untouched(handler, before, message)
    captured = replace(before, captured=result.captured)
    run = HandlerRun(handler, captured, message, comparable(result), here)
    require_same_run(run, repeated(run), "when it runs a second time")
    for zone in ZONES:
        with in_zone(zone):
            again = repeated(run)
        if again != run.result:
            here, there = differing_parts(run.result, again)
            raise Found(
                f"the handler of {in_words(message)} asks the machine for its time zone: here"
                f" {here}, elsewhere {there}. {ZONE}"
            )
    return run, result


def require_untouched(handler: Handler, before: HandlerInput, message: Message) -> None:
    state, body = handle.parse_state(handler.state, before), handle.parse_body(handler, message)
    models = {"state": state, "body": body}
    before_run = {name: model.model_dump(mode="json") for name, model in models.items()}
    try:
        handler.handle(state, body, Context(message, before.captured))
    except BaseException as error:
        why = describe_error(error)
        raise Found(f"the handler of {in_words(message)} fails in a second run: {why}") from error
    for name, model in models.items():
        if (after := model.model_dump(mode="json")) != before_run[name]:
            raise Found(
                f"the handler of {in_words(message)} changes the {name} it was given, from"
                f" {before_run[name]} to {after}: return a changed copy, such as"
                f" {name}.model_copy(update=...)"
            )


def repeated(run: HandlerRun) -> ComparableResult:
    """Return what comes of a run that succeeded before, an error among it."""
    try:
        return comparable(handle.run_pure(run.handler, run.before, run.message, run.here))
    except Exception as error:
        return {"error": describe_error(error)}


def require_same_run(run: HandlerRun, again: ComparableResult, when: str) -> None:
    if again != run.result:
        first, second = differing_parts(run.result, again)
        raise Found(
            f"the handler of {in_words(run.message)} gives something else {when}: first {first},"
            f" then {second}. It keeps something between runs (a module variable, a default"
            f" argument, a class attribute), or depends on chance: only state, body and context"
            f" may decide"
        )


def differing_parts(first: ComparableResult, second: ComparableResult) -> tuple[str, str]:
    for name in second | first:
        if first.get(name) != second.get(name):
            return json.dumps({name: first.get(name)}), json.dumps({name: second.get(name)})
    return json.dumps(first), json.dumps(second)


def comparable(result: HandlerResult) -> ComparableResult:
    """A result as it can be compared, also with one from another process."""
    outputs = [encode_batch(batch) for batch in result.batches]
    compared: ComparableResult = json.loads(json.dumps({"state": result.state, "outputs": outputs}))
    return compared


@dataclass
class CallRecorder:
    """A call that a pure handler may not make: its name, and what to use instead."""

    found: list[tuple[str, str]] = field(default_factory=list)
    captures: int = 0

    def on_event(self, frame: FrameType, event: str, called: Any) -> None:
        """Take a call or a return, as sys.setprofile passes it."""
        if frame.f_code is Context.captured.__code__:
            self.captures += {"call": 1, "return": -1}.get(event, 0)
        if self.captures:
            return
        impure = None
        if event == "call":
            impure = python_call(frame)
        elif event == "c_call" and not is_of_python(frame):
            impure = builtin_call(frame, called)
        if impure is not None:
            self.found.append(impure)


def is_of_python(frame: FrameType) -> bool:
    """Return whether the standard library calls: a log record has a time, and zones are files.

    So has whoever cuts off a handler that takes too long.
    """
    if frame.f_code is handle.run_pure.__code__:
        return True
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in sys.stdlib_module_names


def python_call(frame: FrameType) -> tuple[str, str] | None:
    if frame.f_code in PYTHON:
        return PYTHON[frame.f_code]
    arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    if arguments and frame.f_locals.get(arguments[0]) is SHARED_RANDOM:
        return f"random.{frame.f_code.co_name}()", RANDOMNESS
    return None


def builtin_call(frame: FrameType, called: Any) -> tuple[str, str] | None:
    owner, name = getattr(called, "__self__", None), getattr(called, "__name__", "")
    if owner is SHARED_RANDOM:
        return f"random.{name}()", RANDOMNESS
    if isinstance(owner, type) and issubclass(owner, date) and name in CLOCK_METHODS:
        return f"{owner.__name__}.{name}()", NOW
    if isinstance(owner, socket.socket):
        return "a socket", OUTSIDE
    # Frozen models and dataclasses hash themselves wherever they are a key; that is harmless.
    advice = None if frame.f_code.co_name in ("__hash__", "hash_func") else known(called)
    return (f"{getattr(called, '__module__', '')}.{name}()", advice) if advice else None


def known(called: Any) -> str | None:
    try:
        return FUNCTIONS.get(called)
    except TypeError:
        return None


@contextmanager
def in_zone(zone: str) -> Iterator[None]:
    """Let the machine stand in a time zone; where the platform cannot, it stays where it is."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = zone
    set_zone()
    try:
        yield
    finally:
        del os.environ["TZ"]
        if before is not None:
            os.environ["TZ"] = before
        set_zone()


def set_zone() -> None:
    if hasattr(time, "tzset"):
        time.tzset()


@contextmanager
def recorded_calls() -> Iterator[CallRecorder]:
    """Record the calls of this thread; a profiler that ran before goes on afterwards."""
    recorder = CallRecorder()
    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(recorder.on_event)
    try:
        yield recorder
    finally:
        sys.setprofile(before)
