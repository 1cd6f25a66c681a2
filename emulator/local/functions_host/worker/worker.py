"""The app inside Microsoft's own worker library, loaded once and invoked by function.

This is the inside of a worker's process. Which function a log record belongs to is known here only.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import azure_functions_runtime as library
from azure.functions import meta

from local.functions_host import protos
from local.functions_host.config.settings import Unsupported
from local.functions_host.protos import RpcFunctionMetadata
from local.functions_host.worker.invocations import (
    Invocation,
    InvocationFailed,
    InvocationResult,
    InvocationSucceeded,
)
from local.functions_host.worker.logs import RUNNING

PACKAGES = Path(".python_packages/lib/site-packages")
DATE_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,7})?", re.ASCII)

current_function: ContextVar[str] = ContextVar("current_function", default="")
# By invocation id, for records of worker threads: the library starts them without our context.
running_functions: dict[str, str] = {}


async def load(app_directory: Path) -> tuple[RpcFunctionMetadata, ...]:
    """Import the app's function_app.py and index it; return its functions.

    The app's directory becomes the working directory and comes first on the import path, and what
    was installed into it, for a deployment without a remote build, comes second. An app that cannot
    be imported or indexed is Unsupported, with the worker's own reason.
    """
    if not (app_directory / "function_app.py").exists():
        raise Unsupported(f"no function_app.py in {app_directory}")
    os.chdir(app_directory)
    sys.path[:0] = [str(app_directory), str(app_directory / PACKAGES)]
    logging.setLogRecordFactory(make_record)
    speed_up_date_parsing()
    library.start_threadpool_executor()
    # This host offers the worker no capability of its own.
    init = SimpleNamespace(function_app_directory=str(app_directory), capabilities={})
    await send_request(library.worker_init_request, "worker_init_request", init)
    index = library.functions_metadata_request
    answer = await send_request(index, "functions_metadata_request")
    found = tuple(answer.function_metadata_results or ())
    for metadata in found:
        request = SimpleNamespace(function_id=metadata.function_id, metadata=metadata)
        await send_request(library.function_load_request, "function_load_request", request)
    return found


async def invoke(invocation: Invocation) -> InvocationResult:
    """Run one function once. An Exception that it raises is a result.

    What is no Exception leaves here as it does in the real worker, which then gives no answer, or
    ends where it was told to exit.
    """
    request = SimpleNamespace(
        invocation_id=invocation.id,
        function_id=invocation.function_id,
        input_data=[
            protos.ParameterBinding(name=parameter, data=data)
            for parameter, data in invocation.inputs.items()
        ],
        trigger_metadata=invocation.metadata,
        trace_context=SimpleNamespace(trace_parent="", trace_state="", attributes={}),
        retry_context=SimpleNamespace(
            retry_count=invocation.retries[0],
            max_retry_count=invocation.retries[1],
            exception=None,
        ),
    )
    message = SimpleNamespace(request=SimpleNamespace(invocation_request=request))
    with attribute_records(invocation.function, invocation.id):
        response = await library.invocation_request(message)
    error = response.result.exception
    if response.result.status == protos.StatusResult.Success:
        return InvocationSucceeded(response.return_value)
    if error is None:
        return InvocationFailed("the worker gave no reason")
    return InvocationFailed(error.message, error.stack_trace)


async def send_request(call: Any, name: str, content: Any = None) -> Any:
    message = SimpleNamespace(
        request=SimpleNamespace(**{name: content}),
        properties={"host": "127.0.0.1", "protos": protos},
    )
    answer = await call(message)
    if answer.result.status != protos.StatusResult.Success:
        error = answer.result.exception
        raise Unsupported(f"the app does not load: {error.message}\n{error.stack_trace}")
    return answer


@contextmanager
def attribute_records(function: str, invocation_id: str) -> Iterator[None]:
    """Let log records made meanwhile carry the function's name."""
    token = current_function.set(function)
    running_functions[invocation_id] = function
    try:
        yield
    finally:
        del running_functions[invocation_id]
        current_function.reset(token)


def make_record(*args: Any, **kwargs: Any) -> logging.LogRecord:
    """Make a log record that carries the name of the function that runs."""
    record = logging.LogRecord(*args, **kwargs)
    running = current_function.get() or running_functions.get(
        library.invocation_id_cv.get() or "", ""
    )
    setattr(record, RUNNING, running)
    return record


def speed_up_date_parsing() -> None:
    """Let every converter of the worker library read dates without zone directly.

    For each date the library tries the formats it knows with `strptime`, fourteen of them until it
    comes to the one without zone, which is the form in which Service Bus metadata has dates. That
    was more than a third of the processor time of an invocation. The result is the same, and all
    other dates are left to the library. Calling this twice changes nothing.

    This replaces a private method: the library lets nobody register a converter of his own for
    these triggers (`_OVERRIDABLE_BINDINGS`) and has no other place to step in. A version of the
    library without the method raises AttributeError.
    """
    converter: Any = meta._BaseConverter
    original = getattr(converter._parse_datetime, "original", converter._parse_datetime.__func__)

    def parse(cls: Any, text: str | None) -> datetime | None:
        return (parse_date_without_zone(text) if text else None) or original(cls, text)

    parse.original = original  # type: ignore[attr-defined]
    converter._parse_datetime = classmethod(parse)


def parse_date_without_zone(text: str) -> datetime | None:
    """Read a date without zone, to the microsecond; None for any other text."""
    if not DATE_WITHOUT_ZONE.fullmatch(text):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
