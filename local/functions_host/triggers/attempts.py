"""Running a function under its retry policy."""

import asyncio
import logging
from collections.abc import Mapping
from enum import Enum, auto

from local.functions_host.function import Function
from local.functions_host.protos import TypedData
from local.functions_host.triggers.invocation import report
from local.functions_host.worker import Worker

log = logging.getLogger(__name__)


class Ending(Enum):
    """How the runs of one event ended."""

    SUCCEEDED = auto()
    EXHAUSTED = auto()
    STOPPED = auto()


class Attempts:
    """Runs a function until it succeeds or its policy allows no more; counts in memory only."""

    def __init__(self, function: Function, worker: Worker) -> None:
        self._function = function
        self._worker = worker
        self._stopping = asyncio.Event()

    async def run(self, inputs: Mapping[str, TypedData]) -> Ending:
        """Run, and run again with the same input; a stop ends it between two runs."""
        function, policy = self._function, self._function.retry
        most = policy.told_count if policy else 0
        failures = 0
        while True:
            outcome = await self._worker.invoke(
                function.id, function.name, inputs, retries=(failures, most)
            )
            if report(function.name, outcome):
                return Ending.SUCCEEDED
            failures += 1
            if policy is None or failures > policy.max_count:
                return Ending.EXHAUSTED
            if await self._is_stopped_in(policy.pause(failures)):
                return Ending.STOPPED

    def stop(self) -> None:
        """Begin no further run."""
        self._stopping.set()

    async def _is_stopped_in(self, seconds: float) -> bool:
        log.info("run again in %.1f s", seconds, extra={"function": self._function.name})
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True
