"""The end of a function's invocation, and what the log says of it."""

import logging
from dataclasses import dataclass

from local.functions_host.protos import TypedData

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class InvocationSucceeded:
    """The function returned; `value` is what it gave back, if its bindings take anything."""

    value: TypedData | None


@dataclass(frozen=True, slots=True)
class InvocationFailed:
    """The function raised, could not take its input, or its process ended before it returned."""

    reason: str
    stack: str = ""
    is_process_lost: bool = False


type InvocationResult = InvocationSucceeded | InvocationFailed


def log_result(function: str, result: InvocationResult) -> None:
    """Log a failure in full, and a success for debugging."""
    extra = {"function": function}
    if isinstance(result, InvocationFailed):
        log.error("failed: %s\n%s", result.reason, result.stack, extra=extra)
    else:
        log.debug("succeeded", extra=extra)
