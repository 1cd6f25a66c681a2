"""What went wrong inside Spark, in one line."""

import re

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

# Spark wraps most errors of its Java side in its own classes, but not all of them.
SparkFailure = (PySparkException, Py4JJavaError)

# The last line of a Python traceback: the class of the error, a colon and what it says.
RAISED = re.compile(r"[A-Za-z_][\w.]*: \S")
# A failed stream is described after what went wrong in it.
STREAM_FOLLOWS = "\n=== Streaming Query ==="


def root_cause(error: PySparkException | Py4JJavaError) -> str:
    """The line that says what happened; the others say where."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception.getMessage())
    lines = text.partition(STREAM_FOLLOWS)[0].strip().splitlines()
    raised = [line for line in lines if RAISED.match(line)]
    return raised[-1] if raised else lines[0]
