"""The app inside Microsoft's own worker library, loaded once and invoked by function."""

import asyncio
import math
import os
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import azure_functions_runtime as library

from local.functions_host import dates, logs, protos
from local.functions_host.protos import InvocationResponse, RpcFunctionMetadata, TypedData
from local.functions_host.refusal import Refused

NOTHING: Mapping[str, TypedData] = {}


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The function returned; `value` is what it gave back, if its bindings take anything."""

    value: TypedData | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The function raised, timed out, or could not take its input."""

    reason: str
    stack: str = ""
    is_timeout: bool = False


type Outcome = Succeeded | Failed


class Worker:
    """Runs functions of one app; there is one worker in a process, as the library keeps globals."""

    def __init__(
        self, metadata: tuple[RpcFunctionMetadata, ...], function_timeout_seconds: float
    ) -> None:
        self.metadata = metadata
        limitless = math.isinf(function_timeout_seconds)
        self._timeout_seconds = None if limitless else function_timeout_seconds
        self._bound: dict[str, dict[str, TypedData]] = {}

    @classmethod
    async def load(cls, app_directory: Path, function_timeout_seconds: float) -> "Worker":
        """Import the app's function_app.py and index it.

        The app's directory becomes the working directory and comes first on the import path. An
        app that cannot be imported or indexed is Refused with the worker's own words.
        """
        if not (app_directory / "function_app.py").exists():
            raise Refused(f"no function_app.py in {app_directory}")
        os.chdir(app_directory)
        sys.path.insert(0, str(app_directory))
        dates.shorten_way()
        library.start_threadpool_executor()
        await ask(library.worker_init_request, "worker_init_request", init(app_directory))
        answer = await ask(library.functions_metadata_request, "functions_metadata_request")
        found = tuple(answer.function_metadata_results or ())
        for metadata in found:
            request = SimpleNamespace(function_id=metadata.function_id, metadata=metadata)
            await ask(library.function_load_request, "function_load_request", request)
        return cls(found, function_timeout_seconds)

    def bind(self, function_id: str, name: str, data: TypedData) -> None:
        """Give a function an input that is the same in every run."""
        self._bound.setdefault(function_id, {})[name] = data

    async def invoke(
        self,
        function_id: str,
        name: str,
        inputs: Mapping[str, TypedData],
        metadata: Mapping[str, TypedData] = NOTHING,
        *,
        retries: tuple[int, int] = (0, 0),
    ) -> Outcome:
        """Run one function once; whatever it raises is an outcome, never an exception.

        `retries` is what the function is told of its retries: which one this is, and the most.

        Past the function timeout an async function is cancelled. A sync one cannot be: its thread
        runs on, its result is dropped.
        """
        invocation_id = str(uuid.uuid4())
        every_input = {**inputs, **self._bound.get(function_id, NOTHING)}
        request = invocation(function_id, invocation_id, every_input, metadata, retries)
        with named(name, invocation_id):
            try:
                async with asyncio.timeout(self._timeout_seconds):
                    response = await library.invocation_request(request)
            except TimeoutError:
                reason = f"function {name} ran longer than {self._timeout_seconds} s"
                return Failed(reason, is_timeout=True)
        return outcome_of(response)


@contextmanager
def named(name: str, invocation_id: str) -> Iterator[None]:
    """Let log records made meanwhile carry the function's name."""
    token = logs.current_function.set(name)
    logs.running_functions[invocation_id] = name
    try:
        yield
    finally:
        del logs.running_functions[invocation_id]
        logs.current_function.reset(token)


def outcome_of(response: InvocationResponse) -> Outcome:
    """Translate the worker's answer."""
    error = response.result.exception
    if response.result.status == protos.StatusResult.Success:
        return Succeeded(response.return_value)
    if error is None:
        return Failed("the worker gave no reason")
    return Failed(error.message, error.stack_trace)


def invocation(
    function_id: str,
    invocation_id: str,
    inputs: Mapping[str, TypedData],
    metadata: Mapping[str, TypedData],
    retries: tuple[int, int],
) -> Any:
    """Build the request the real host streams to its worker."""
    request = SimpleNamespace(
        invocation_id=invocation_id,
        function_id=function_id,
        input_data=[protos.ParameterBinding(name=name, data=data) for name, data in inputs.items()],
        trigger_metadata=metadata,
        trace_context=SimpleNamespace(trace_parent="", trace_state="", attributes={}),
        retry_context=SimpleNamespace(
            retry_count=retries[0], max_retry_count=retries[1], exception=None
        ),
    )
    return SimpleNamespace(request=SimpleNamespace(invocation_request=request))


def init(app_directory: Path) -> Any:
    """Build the first request; this host offers no capability of its own."""
    return SimpleNamespace(function_app_directory=str(app_directory), capabilities={})


async def ask(call: Any, name: str, content: Any = None) -> Any:
    """Send one request to the library; a failure it reports is Refused in its words."""
    envelope = SimpleNamespace(
        request=SimpleNamespace(**{name: content}),
        properties={"host": "127.0.0.1", "protos": protos},
    )
    answer = await call(envelope)
    if answer.result.status != protos.StatusResult.Success:
        error = answer.result.exception
        raise Refused(f"the app does not load: {error.message}\n{error.stack_trace}")
    return answer
