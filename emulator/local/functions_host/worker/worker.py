"""The app inside Microsoft's own worker library, loaded once and invoked by function."""

import asyncio
import math
import os
import re
import sys
import time
import uuid
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import azure_functions_runtime as library
from azure.functions import meta

from local.functions_host import protos
from local.functions_host.config.settings import Unsupported
from local.functions_host.protos import RpcFunctionMetadata, TypedData
from local.functions_host.worker import logs
from local.functions_host.worker.results import (
    InvocationFailed,
    InvocationResult,
    InvocationSucceeded,
)

NOTHING: Mapping[str, TypedData] = {}
PACKAGES = Path(".python_packages/lib/site-packages")
DATE_WITHOUT_ZONE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,7})?", re.ASCII)


class AppWorker:
    """Runs functions of one app; there is one worker in a process, as the library keeps globals."""

    def __init__(
        self,
        metadata: tuple[RpcFunctionMetadata, ...],
        function_timeout_seconds: float,
        invocation_seconds: float,
    ) -> None:
        self.metadata = metadata
        self._invocation_seconds = invocation_seconds
        self._free_at = 0.0  # by the loop's clock: when every invocation so far has been paid for
        limitless = math.isinf(function_timeout_seconds)
        self._timeout_seconds = None if limitless else function_timeout_seconds
        self._running: set[asyncio.Timeout] = set()  # what limits each invocation
        self.lost = asyncio.Event()  # set when a function ran too long: this worker runs no more
        self._bound: dict[str, dict[str, TypedData]] = {}

    @classmethod
    async def load(
        cls, app_directory: Path, function_timeout_seconds: float, invocation_seconds: float
    ) -> "AppWorker":
        """Import the app's function_app.py and index it.

        Each invocation costs `invocation_seconds`, one after another, before its function runs.

        The app's directory becomes the working directory and comes first on the import path, and
        what was installed into it, for a deployment without a remote build, comes second. An app
        that cannot be imported or indexed is Unsupported, with the worker's own reason.
        """
        if not (app_directory / "function_app.py").exists():
            raise Unsupported(f"no function_app.py in {app_directory}")
        os.chdir(app_directory)
        sys.path[:0] = [str(app_directory), str(app_directory / PACKAGES)]
        speed_up_date_parsing()
        library.start_threadpool_executor()
        # This host offers the worker no capability of its own.
        init = SimpleNamespace(function_app_directory=str(app_directory), capabilities={})
        await send_request(library.worker_init_request, "worker_init_request", init)
        index = library.functions_metadata_request
        answer = await send_request(index, "functions_metadata_request")
        found = tuple(answer.function_metadata_results or ())
        for metadata in found:
            load = SimpleNamespace(function_id=metadata.function_id, metadata=metadata)
            await send_request(library.function_load_request, "function_load_request", load)
        return cls(found, function_timeout_seconds, invocation_seconds)

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
    ) -> InvocationResult:
        """Run one function once; whatever it raises is a result, never an exception.

        `retries` is what the function's context says: which retry this is, and how many there are.

        A function past the timeout takes the worker along, as the real host ends its process: every
        invocation under way fails, each later one does, and `lost` is set. Async functions are
        cancelled; the threads of sync ones run on until whoever waits for `lost` ends the process.
        """
        if self.lost.is_set():
            return InvocationFailed("the worker process has ended", is_process_lost=True)
        invocation_id = str(uuid.uuid4())
        every_input = {**inputs, **self._bound.get(function_id, NOTHING)}
        invocation = SimpleNamespace(
            invocation_id=invocation_id,
            function_id=function_id,
            input_data=[
                protos.ParameterBinding(name=parameter, data=data)
                for parameter, data in every_input.items()
            ],
            trigger_metadata=metadata,
            trace_context=SimpleNamespace(trace_parent="", trace_state="", attributes={}),
            retry_context=SimpleNamespace(
                retry_count=retries[0], max_retry_count=retries[1], exception=None
            ),
        )
        message = SimpleNamespace(request=SimpleNamespace(invocation_request=invocation))
        if self._invocation_seconds:
            now = asyncio.get_running_loop().time()
            self._free_at = max(self._free_at, now) + self._invocation_seconds
            await asyncio.sleep(self._free_at - now)
        with logs.attribute_records(name, invocation_id):
            limit = asyncio.timeout(self._timeout_seconds)
            try:
                async with limit:
                    self._running.add(limit)
                    response = await library.invocation_request(message)
            except TimeoutError:
                return InvocationFailed(self._lose(name), is_process_lost=True)
            finally:
                self._running.discard(limit)
        error = response.result.exception
        if response.result.status == protos.StatusResult.Success:
            return InvocationSucceeded(response.return_value)
        if error is None:
            return InvocationFailed("the worker gave no reason")
        return InvocationFailed(error.message, error.stack_trace)

    def late_seconds(self) -> float:
        """Return how long ago the oldest invocation's timeout was over; asked by another thread.

        More than a moment says that the event loop is blocked by the app.
        """
        ends = [limit.when() for limit in tuple(self._running)]
        return max((time.monotonic() - end for end in ends if end is not None), default=0.0)

    def _lose(self, name: str) -> str:
        """End every invocation, unless this is one that another ended; return why it failed."""
        if self.lost.is_set():
            return f"the worker process ended while function {name} ran"
        self.lost.set()
        now = asyncio.get_running_loop().time()
        for limit in self._running:
            if not limit.expired():
                limit.reschedule(now)
        ran = f"function {name} ran longer than {self._timeout_seconds} s"
        return f"{ran}: its worker process ends, with all that it is doing"


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
