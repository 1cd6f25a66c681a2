"""Strange exceptions that a team's code may raise, and the words for them in a fault."""

import asyncio
from collections.abc import Callable

import pytest

from shared.domain.reports import REASON_CHARACTERS_MAX


class Silent(Exception):
    """An exception that has no text."""

    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307 - just that is tried


class Unwilling(BaseException):
    """What is no Exception, and ends whoever looks at it."""

    def __str__(self) -> str:
        raise SystemExit("do not ask")

    __repr__ = __str__


class Panic(BaseException):
    """What native code raises."""


def nested() -> BaseException:
    return BaseExceptionGroup("two at once", [SystemExit(3), ValueError("wrong")])


ODD = type("Odd\n\x1b[31m" + "x" * 5_000, (BaseException,), {})

# What is raised, and why its message failed, as the fault says.
RAISED: dict[str, tuple[Callable[[], BaseException], str]] = {
    "exit": (lambda: SystemExit("bad record"), "SystemExit: bad record"),
    "exit without a word": (SystemExit, "SystemExit: no message"),
    "interrupt": (KeyboardInterrupt, "KeyboardInterrupt: no message"),
    "end of a generator": (lambda: GeneratorExit("over"), "GeneratorExit: over"),
    "panic": (lambda: Panic("index out of bounds"), "Panic: index out of bounds"),
    "cancelled": (asyncio.CancelledError, "CancelledError: no message"),
    "group": (
        nested,
        "BaseExceptionGroup: two at once (2 sub-exceptions); SystemExit: 3; ValueError: wrong",
    ),
    "no text": (Silent, "Silent: its text cannot be told, because of TypeError"),
    "raising text": (Unwilling, "Unwilling: its text cannot be told, because of SystemExit"),
    "odd name": (lambda: ODD("x"), "Odd\\n\\x1b[31m" + "x" * 71 + ": x"),
    "control characters": (
        lambda: ValueError("a\nb\x1b[2J\ud800"),
        "ValueError: a\\nb\\x1b[2J\\ud800",
    ),
    "huge text": (
        lambda: ValueError("x" * 1_000_000),
        f"ValueError: {'x' * 1_000_000}"[:REASON_CHARACTERS_MAX],
    ),
}
STRANGE = pytest.mark.parametrize("raised", RAISED)


def fail(raised: str) -> None:
    """Raise one of these."""
    raise RAISED[raised][0]()


# The frame of that.
FAILED_AT = f"tests/strange.py:{fail.__code__.co_firstlineno + 2} in fail"
