"""See what a handler calls while it runs, and name what gives another answer in another run."""

import builtins
import io
import os
import random
import secrets
import socket
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from types import CodeType, FrameType
from typing import Any

from shared.domain.handler import Context

NOW = "use context.now, the sender's time"
IDS = "use context.new_id()"
RANDOMNESS = "use context.random"
OUTSIDE = "look it up with context.captured(...), or declare the handler effectful"
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


@dataclass
class Witness:
    """What was called that a pure handler may not call: its name, and what to use instead."""

    seen: list[tuple[str, str]] = field(default_factory=list)
    captures: int = 0

    def notice(self, frame: FrameType, event: str, called: Any) -> None:
        """Hear of a call or a return from the interpreter."""
        if frame.f_code is Context.captured.__code__:
            self.captures += {"call": 1, "return": -1}.get(event, 0)
        if self.captures:
            return
        if event == "call":
            self.add(python_call(frame))
        elif event == "c_call" and not is_of_python(frame):
            self.add(builtin_call(frame, called))

    def add(self, found: tuple[str, str] | None) -> None:
        """Remember a call that should not have been."""
        if found is not None:
            self.seen.append(found)


def is_of_python(frame: FrameType) -> bool:
    """Whether the standard library is calling: a log record has a time, and zones are files."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] in sys.stdlib_module_names


def python_call(frame: FrameType) -> tuple[str, str] | None:
    """Whether a function written in Python is among those that may not be called."""
    if frame.f_code in PYTHON:
        return PYTHON[frame.f_code]
    arguments = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    if arguments and frame.f_locals.get(arguments[0]) is SHARED_RANDOM:
        return f"random.{frame.f_code.co_name}()", RANDOMNESS
    return None


def builtin_call(frame: FrameType, called: Any) -> tuple[str, str] | None:
    """Whether a built-in function is among those that may not be called."""
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
    """The advice about a built-in function, if there is any."""
    try:
        return FUNCTIONS.get(called)
    except TypeError:
        return None


@contextmanager
def witnessed() -> Iterator[Witness]:
    """Watch every call of this thread; whoever watched before goes on afterwards."""
    witness = Witness()
    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(witness.notice)
    try:
        yield witness
    finally:
        sys.setprofile(before)
