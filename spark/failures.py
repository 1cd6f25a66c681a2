"""What went wrong inside Spark, in one line."""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

# Spark wraps most errors of its Java side in its own classes, but not all of them.
SparkFailure = (PySparkException, Py4JJavaError)

# The last line of a Python traceback: the class of the error, a colon and what it says.
RAISED = re.compile(r"((\w+\.)+\w+|\w+(Error|Exception)): \S")
# Python's wrapping of an error of Java, which says nothing itself.
WRAPPED = "py4j.protocol.Py4JJavaError: "
THROWN, CAUSED_BY, FRAME = ": ", "Caused by: ", "\t"
# A failed stream is described after what went wrong in it.
STREAM_FOLLOWS = "\n=== Streaming Query ==="


def root_cause(error: PySparkException | Py4JJavaError) -> str:
    """The line that says what happened; the others say where."""
    told = str(error).partition(STREAM_FOLLOWS)[0].strip()
    lines = told.splitlines() or [type(error).__name__]
    raised = [line for line in lines if RAISED.match(line) and not line.startswith(WRAPPED)]
    if raised:
        return raised[-1]
    thrown = [line.removeprefix(THROWN) for line in lines if line.startswith(THROWN)]
    head = thrown[0] if thrown else lines[0]
    cause = last_cause(lines) or innermost(in_java(error))
    return head if not cause or cause in head else f"{head} {cause}"


def last_cause(lines: Sequence[str]) -> str:
    """The last cause that Java names in its own telling, in one line; empty where it names none."""
    starts = [n for n, line in enumerate(lines) if line.startswith(CAUSED_BY)]
    if not starts:
        return ""
    said = takewhile(lambda line: not line.startswith(FRAME), lines[starts[-1] :])
    return " ".join(" ".join(said).removeprefix(CAUSED_BY).split())


def in_java(error: PySparkException | Py4JJavaError) -> Any:
    """The exception as Java threw it; None for one that Python raised."""
    if isinstance(error, Py4JJavaError):
        return error.java_exception
    return getattr(error, "_origin", None)


def innermost(java: Any) -> str:
    """What the cause of all causes says, in one line; empty where it caused itself."""
    if java is None or java.getCause() is None:
        return ""
    while (cause := java.getCause()) is not None:
        java = cause
    return " ".join(str(java.getMessage()).split())
