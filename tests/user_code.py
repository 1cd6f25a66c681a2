"""What user code can do at its worst, and each place where Lockstep runs it."""

import asyncio
import ctypes
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from pydantic import BaseModel, model_serializer

from shared.domain.errors import (
    InvalidMessage,
    LockstepError,
    NotHalted,
    OutcomeUnknown,
    Unavailable,
)
from shared.domain.handler import Handled, Output
from tests.strange import Panic, Silent
from tests.world import Account, Amount


class CannotSpeak(Exception):
    """An exception that fails when it is asked for its text, in whichever way."""

    def __str__(self) -> str:
        raise SystemExit("no text")

    __repr__ = __str__


class Unhashable(Exception):
    """An exception that is equal to everything and cannot be a key."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Way:
    """One thing that user code does, and a word of the reason that its fault gives."""

    name: str
    do: Callable[[], Any]
    word: str = "no good"


def raising(error: BaseException) -> Callable[[], Any]:
    """A function that raises it."""

    def do() -> Any:
        raise error

    return do


def recurse() -> Any:
    """Call itself for ever."""
    return recurse()


def exhaust_memory() -> Any:
    """Ask for more memory than there is."""
    return bytearray(sys.maxsize)


def raise_in_a_circle() -> Any:
    """Raise an exception that is its own cause's cause."""
    first, second = ValueError("no good"), KeyError("other")
    first.__cause__, second.__cause__ = second, first
    raise first


def raise_from_the_middle_of_others() -> Any:
    """Raise while another exception is handled, a hundred times over."""
    error: Exception = ValueError("no good")
    for number in range(100):
        outer = ValueError("no good")
        outer.__context__ = error if number else None
        error = outer
    raise error


def print_to_a_closed_stdout() -> Any:
    """Print where nobody can be printed to."""
    with Path(os.devnull).open("w", encoding="utf-8") as closed:
        pass
    print("no good", file=closed)


def cancel_itself() -> Any:
    """Raise what a cancelled call raises, though nobody has cancelled it."""
    raise asyncio.CancelledError("no good")


def refuse_a_model() -> Any:
    """Validate something else, and let the complaint through."""
    return Amount.model_validate({"amount": "no good"})


def run_a_loop_inside() -> Any:
    """Run an event loop in which something fails."""

    async def fail() -> None:
        raise ValueError("no good")

    loop = asyncio.new_event_loop()
    try:
        running = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return loop.run_until_complete(fail())
        finally:
            asyncio._set_running_loop(running)
    finally:
        loop.close()


def fail_in_a_thread() -> Any:
    """Hand on what a thread raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            sys.exit("no good")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    raise raised[0]


# Each raises, whatever it is that it raises.
RAISES = (
    Way("an exception", raising(ValueError("no good"))),
    Way("an exception without a text", raising(LookupError()), "LookupError"),
    Way("a key that is missing", raising(KeyError("no good"))),
    Way("an assertion", raising(AssertionError("no good"))),
    Way("an exception whose text is none", raising(Silent()), "Silent"),
    Way("an exception that cannot say its text", raising(CannotSpeak()), "CannotSpeak"),
    Way("an exception that compares with nothing", raising(Unhashable("no good"))),
    Way("a text of a million characters", raising(ValueError("no good" * 150_000))),
    Way("a text of control characters", raising(ValueError("\x00\x1b[2J\r\nno good"))),
    Way("a text that is no Unicode", raising(ValueError("no good \ud800")), "Error"),
    Way("a class without a name", raising(type("", (Exception,), {})("no good"))),
    Way("a chain that is a circle", raise_in_a_circle),
    Way("a chain of a hundred", raise_from_the_middle_of_others),
    Way("a group of exceptions", raising(ExceptionGroup("no good", [ValueError("a")]))),
    Way("a group of what is no exception", raising(BaseExceptionGroup("no good", [Panic()]))),
    Way("a native panic", raising(Panic("no good"))),
    Way("sys.exit", lambda: sys.exit("no good")),
    Way("exit without a text", lambda: sys.exit(0), "SystemExit"),
    Way("a keyboard interrupt", raising(KeyboardInterrupt("no good"))),
    Way("the end of a generator", raising(GeneratorExit("no good"))),
    Way("the end of an iteration", raising(StopIteration("no good")), "StopIteration"),
    Way("the end of an asynchronous iteration", raising(StopAsyncIteration("no good"))),
    Way("a cancellation that nobody asked for", cancel_itself, "CancelledError"),
    Way("a time-out", raising(TimeoutError("no good"))),
    Way("no memory", raising(MemoryError("no good"))),
    Way("more memory than there is", exhaust_memory, "MemoryError"),
    Way("a recursion without end", recurse, "RecursionError"),
    Way("a number of too many digits", lambda: str(10**5_000), "digits"),
    Way("a division by zero", lambda: 1 // 0, "ZeroDivisionError"),
    Way("a system's error", raising(OSError(28, "no good"))),
    Way("a broken pipe", raising(BrokenPipeError("no good"))),
    Way("a connection that is refused", raising(ConnectionRefusedError("no good"))),
    Way("a module that is missing", raising(ModuleNotFoundError("no good"))),
    Way("a print to a closed stdout", print_to_a_closed_stdout, "closed file"),
    Way("a complaint of another model", refuse_a_model, "amount"),
    Way("a loop of its own that fails", run_a_loop_inside),
    Way("what a thread of its own raised", fail_in_a_thread),
    Way("Lockstep's own Unavailable", raising(Unavailable("no good", 1.0))),
    Way("Lockstep's own OutcomeUnknown", raising(OutcomeUnknown("no good"))),
    Way("Lockstep's own InvalidMessage", raising(InvalidMessage("no good"))),
    Way("Lockstep's own NotHalted", raising(NotHalted("no good"))),
    Way("Lockstep's own error", raising(LockstepError("no good"))),
)


class Uncooperative:
    """Something that no result of a handler is."""

    def __getattr__(self, name: str) -> Any:
        raise Panic("no good")


class Serialised(BaseModel):
    """A body that raises when it is written as JSON."""

    @model_serializer
    def write(self) -> dict[str, Any]:
        raise Panic("no good")


# Each returns something that is no result.
RETURNS = (
    Way("nothing", lambda: None, "None"),
    Way("a text", lambda: "no good", "str"),
    Way("a class", lambda: Account, "returned a ModelMetaclass"),
    Way("a state of another model", lambda: Amount(amount=1), "Amount"),
    Way("an iterator", lambda: iter(range(0)), "range_iterator"),
    Way("a thing that raises whatever it is asked", Uncooperative, "Uncooperative"),
    Way("outputs that are none", lambda: Handled(Account(), ("no good",)), ""),  # type: ignore[arg-type]
    Way(
        "an output that cannot be written",
        lambda: Handled(Account(), (Output("a", Serialised()),)),
        "no good",
    ),
    Way(
        "an answer that cannot be written",
        lambda: Handled(Account(), answer=Serialised()),
        "no good",
    ),
    Way("an alert that is no text", lambda: Handled(Account(), alert=Uncooperative()), ""),  # type: ignore[arg-type]
    Way("outputs without end", lambda: Handled(Account(), count()), ""),  # type: ignore[arg-type]
)


def leave_a_task_that_exits() -> Account:
    """Leave a task in the loop, which ends it as far as it can."""

    async def leave() -> None:
        sys.exit("no good")

    asyncio.get_running_loop().call_soon(asyncio.get_running_loop().create_task, leave())
    return Account()


def cancel_every_task() -> Account:
    """Cancel whatever runs in the loop, itself among it."""
    for task in asyncio.all_tasks(asyncio.get_running_loop()):
        task.cancel()
    return Account()


def stop_the_loop() -> Account:
    """Stop the loop that others run in."""
    asyncio.get_running_loop().stop()
    return Account()


def close_the_loop() -> Account:
    """Close the loop that others run in."""
    asyncio.get_running_loop().close()
    return Account()


def fork() -> Account:
    """Come back twice."""
    with warnings.catch_warnings():
        # Python warns of threads that the child does not have.
        warnings.simplefilter("ignore")
        child = os.fork()
    if child:
        os.waitpid(child, 0)
    return Account()


def fork_and_exit() -> Account:
    """End one of the two that come back as a program ends."""
    before = os.getpid()
    fork()
    if os.getpid() != before:
        sys.exit(0)
    return Account()


def leave_a_thread_that_raises() -> Account:
    """Leave a thread that fails by itself."""

    def run() -> None:
        with suppress(Panic):
            raise Panic("no good")

    threading.Thread(target=run, daemon=True).start()
    return Account()


# Each leaves something behind, whatever becomes of its own message.
LEAVES = (
    Way("a task that exits", leave_a_task_that_exits),
    Way("every task cancelled", cancel_every_task),
    Way("the loop stopped", stop_the_loop),
    Way("the loop closed", close_the_loop),
    Way("a fork of the process", fork),
    Way("a fork that exits", fork_and_exit),
    Way("a thread that raises", leave_a_thread_that_raises),
)


def spin() -> Account:
    """Never come back, in Python."""
    while True:
        pass


def hold_the_lock() -> Account:
    """Never come back, in C, with the interpreter's lock."""
    re.match("(a+)+$", "a" * 60 + "b")
    return Account()


def block() -> Account:
    """Never come back, in C, without the lock."""
    threading.Event().wait()
    return Account()


def kill_itself() -> Account:
    """End as the kernel ends a process that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    return Account()


def crash() -> Account:
    """Read where nothing is, as broken native code does."""
    ctypes.string_at(0)
    return Account()


# Each never comes back, or ends its process; the word is that of the fault which comes of it.
STAYS = (
    Way("a loop without end", spin, "took more than"),
    Way("a call that blocks for ever", block, "took more than"),
)
# The fault of a message that ended its worker, or was under way in one that others ended.
WORKER_ENDED = "the worker that ran its handler"
ENDS = (
    Way("an exit that nobody can catch", lambda: os._exit(3), WORKER_ENDED),
    Way("a signal that kills", kill_itself, WORKER_ENDED),
    Way("a crash of native code", crash, WORKER_ENDED),
    Way("an abort", os.abort, WORKER_ENDED),
    Way("a call in C that holds the lock", hold_the_lock, WORKER_ENDED),
)
BY_NAME = {way.name: way for way in (*RAISES, *RETURNS, *LEAVES, *STAYS, *ENDS)}
