"""A function's invocation, how it ends, and what the log says of it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from local.functions_host.protos import RpcFunctionMetadata, TypedData

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of a function that a worker is asked for.

    `retries` is what the function's context says: which retry this is, and how many there are.
    """

    id: str
    function_id: str
    function: str
    inputs: Mapping[str, TypedData]
    metadata: Mapping[str, TypedData]
    retries: tuple[int, int]


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


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The first word of a worker whose app is loaded: its functions."""

    functions: tuple[RpcFunctionMetadata, ...]


@dataclass(frozen=True, slots=True)
class WorkerRefused:
    """The only word of a worker whose app cannot be loaded: why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of the invocation with an id."""

    id: str
    result: InvocationResult


def log_result(function: str, result: InvocationResult) -> None:
    """Log a failure in full, and a success for debugging."""
    extra = {"function": function}
    if isinstance(result, InvocationFailed):
        log.error("failed: %s\n%s", result.reason, result.stack, extra=extra)
    else:
        log.debug("succeeded", extra=extra)
