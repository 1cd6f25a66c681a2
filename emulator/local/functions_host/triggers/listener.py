"""The contract between the host and a trigger's listener, and the retries of a function."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol, runtime_checkable

from local.functions_host.config.functions import AppFunction
from local.functions_host.config.host_json import HostJson
from local.functions_host.config.keys import Keys
from local.functions_host.config.settings import AppSettings
from local.functions_host.durable.extension import DurableExtension
from local.functions_host.protos import TypedData
from local.functions_host.web import WebServer
from local.functions_host.worker.invocations import InvocationFailed, log_result
from local.functions_host.worker.process import WorkerProcess

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostContext:
    region: str
    settings: AppSettings
    limits: HostJson
    keys: Keys
    worker: WorkerProcess
    web: WebServer
    durable: DurableExtension


class Listener:
    """Waits for events of one function and invokes it.

    Making one reads the whole binding: what it does not honour raises Unsupported then, not later.
    The methods do nothing here: some triggers have nothing of their own to start or to stop.
    """

    async def start(self) -> None:
        """Begin to listen; a service that is down is tried for as long as it takes."""

    async def stop(self, drain_seconds: float) -> None:
        """Take nothing new, let what runs end within the limit, and let go of everything."""


@runtime_checkable
class Invocable(Protocol):
    """A listener whose function may be run from the admin endpoint."""

    async def run_now(self, text: str) -> None:
        """Invoke the function once; how it ends is logged."""


type ListenerFactory = Callable[[AppFunction, HostContext], Listener]


class RetriesEnd(Enum):
    SUCCEEDED = auto()
    EXHAUSTED = auto()
    STOPPED = auto()


class RetryingInvoker:
    """Runs a function until it succeeds or its policy allows no more; counts in memory only."""

    def __init__(self, function: AppFunction, worker: WorkerProcess) -> None:
        self._function = function
        self._worker = worker
        self._stopping = asyncio.Event()

    async def run(self, inputs: Mapping[str, TypedData]) -> RetriesEnd:
        """Run, and run again with the same input; a stop ends it between two runs."""
        function, policy = self._function, self._function.retry
        max_count = policy.wire_max_count if policy else 0
        failures = 0
        while True:
            retries = (failures, max_count)
            result = await self._worker.invoke(function.id, function.name, inputs, retries=retries)
            log_result(function.name, result)
            if not isinstance(result, InvocationFailed):
                return RetriesEnd.SUCCEEDED
            failures += 1
            if policy is None or failures > policy.max_count:
                return RetriesEnd.EXHAUSTED
            pause = policy.pause(failures)
            log.info("run again in %.1f s", pause, extra={"function": function.name})
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                continue
            return RetriesEnd.STOPPED

    def stop(self) -> None:
        self._stopping.set()
