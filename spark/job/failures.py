"""The reason why a job cannot go on, in one line."""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

# Spark wraps most errors of its Java side in its own classes, but not all of them.
SparkFailure = (PySparkException, Py4JJavaError)

# The last line of a Python traceback: the class of the error, a colon and the message.
RAISED = re.compile(r"((\w+\.)+\w+|\w+(Error|Exception)): \S")
# Python's wrapper for a Java error. Its own line says nothing about the cause.
WRAPPED = "py4j.protocol.Py4JJavaError: "
THROWN, CAUSED_BY, FRAME = ": ", "Caused by: ", "\t"
# Spark appends a description of the stream to what went wrong in it.
STREAM_FOLLOWS = "\n=== Streaming Query ==="


class JobRefused(Exception):
    """The job cannot go on. The message is one line that tells its user why."""


def find_root_cause(error: PySparkException | Py4JJavaError) -> str:
    """The line of an error that says what happened; the other lines say where.

    The sources are tried in this order, because each later one is less specific: the last line of
    a Python traceback, the line Java threw with the last cause in its stack trace, and the
    innermost cause of the Java exception itself.
    """
    message = str(error).partition(STREAM_FOLLOWS)[0].strip()
    lines = message.splitlines() or [type(error).__name__]
    raised = [line for line in lines if RAISED.match(line) and not line.startswith(WRAPPED)]
    if raised:
        return raised[-1]
    thrown = [line.removeprefix(THROWN) for line in lines if line.startswith(THROWN)]
    head = thrown[0] if thrown else lines[0]
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    cause = find_last_cause(lines) or find_innermost_cause(java)
    return head if not cause or cause in head else f"{head} {cause}"


def find_last_cause(lines: Sequence[str]) -> str:
    """The last "Caused by" of a Java stack trace, in one line; empty if there is none."""
    starts = [n for n, line in enumerate(lines) if line.startswith(CAUSED_BY)]
    if not starts:
        return ""
    cause = takewhile(lambda line: not line.startswith(FRAME), lines[starts[-1] :])
    return " ".join(" ".join(cause).removeprefix(CAUSED_BY).split())


def find_innermost_cause(java: Any) -> str:
    """The message of a Java exception's innermost cause, in one line; empty if it has no cause."""
    if java is None or java.getCause() is None:
        return ""
    while (cause := java.getCause()) is not None:
        java = cause
    return " ".join(str(java.getMessage()).split())
