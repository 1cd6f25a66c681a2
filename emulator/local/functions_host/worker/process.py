"""The worker of a host: a process apart, which dies alone and takes what it was doing along.

How its death goes follows the real host (WebJobs.Script, `RpcFunctionInvocationDispatcher`, and
what was measured of it):

- What was under way fails. Of the first worker all fails at once. Of every later one they fail one
  by one, each more slowly than the one before, and only then does a new worker begin; what comes
  meanwhile fails as well, at once.
- What comes while a worker begins waits for it. The first to follow begins at once, each other one
  no sooner than ten seconds after the beginning of the one before.
- After the third death, when no two lie more than half an hour apart, the host is to end itself,
  and the platform starts it again.
- A function past its time ends its worker, which counts as no death.
"""

import asyncio
import logging
import math
import os
import socket
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from local.functions_host.config.settings import Unsupported
from local.functions_host.protos import RpcFunctionMetadata, TypedData
from local.functions_host.worker import frames
from local.functions_host.worker.invocations import (
    Invocation,
    InvocationFailed,
    InvocationResult,
    WorkerReady,
)

log = logging.getLogger(__name__)

NOTHING: Mapping[str, TypedData] = {}
DEATHS_MAX = 3
DEATHS_SECONDS = 1_800.0  # a death that comes so long after the last one is the first again
RESTART_SECONDS = 10.0
# Measured: 40 in flight take 3 s to fail, 64 about 9, and 420 more than two minutes.
FAILURE_SECONDS = 0.004  # times how many have failed before it
NO_WORKER_SECONDS = 0.0025  # so long takes each delivery that finds no worker, one after the other
NO_WORKER = "Did not find any initialized language workers"


class WorkerProcess:
    """Runs the functions of one app in a process that is replaced when it ends."""

    def __init__(
        self, app: Path, region: str, function_timeout_seconds: float, invocation_seconds: float
    ) -> None:
        """Each invocation costs `invocation_seconds`, one after another, before it runs."""
        self._app = app
        self._region = region
        self._timeout_seconds = function_timeout_seconds
        self._invocation_seconds = invocation_seconds
        self._free_at = 0.0  # by the loop's clock: when every invocation so far has been paid for
        self._bound: dict[str, dict[str, TypedData]] = {}
        self._running: dict[str, asyncio.Future[InvocationResult]] = {}
        self._at_rest = asyncio.Event()
        self._at_rest.set()
        self._deaths: list[float] = []
        self._replaced_at: float | None = None  # None while the first worker runs
        self._fails_one_by_one = False
        self._turns = asyncio.Lock()  # of deliveries that find no worker
        self._ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._overdue = ""
        self.functions: tuple[RpcFunctionMetadata, ...] = ()
        self.exhausted = asyncio.Event()  # set after the third death: the host is to end itself

    @property
    def pid(self) -> int | None:
        """The process that runs functions now, if there is one."""
        return self._process.pid if self._process and self._ready.is_set() else None

    async def start(self) -> None:
        """Start the first worker; raises Unsupported where the app cannot be loaded."""
        self.functions = await self._begin()

    async def stop(self) -> None:
        """End the worker; what it still does is cut off."""
        if self._watcher is not None:
            self._watcher.cancel()
        self._kill()
        if self._process is not None:
            await self._process.wait()

    def count_running(self) -> int:
        """Return how many invocations are under way."""
        return len(self._running)

    async def rest(self, seconds: float) -> bool:
        """Wait until nothing is under way; False where something still is after so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._at_rest.wait(), seconds)
        return not self._running

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
        """
        if self._fails_one_by_one:
            async with self._turns:
                await asyncio.sleep(NO_WORKER_SECONDS)
            return InvocationFailed(NO_WORKER, is_process_lost=True)
        if self._invocation_seconds:
            now = asyncio.get_running_loop().time()
            self._free_at = max(self._free_at, now) + self._invocation_seconds
            await asyncio.sleep(self._free_at - now)
        await self._ready.wait()
        if self.exhausted.is_set():
            return InvocationFailed(NO_WORKER, is_process_lost=True)
        bound = self._bound.get(function_id, NOTHING)
        invocation = Invocation(
            str(uuid.uuid4()), function_id, name, {**inputs, **bound}, metadata, retries
        )
        result: asyncio.Future[InvocationResult] = asyncio.get_running_loop().create_future()
        self._running[invocation.id] = result
        self._at_rest.clear()
        frames.write(self._writer, invocation)
        limit = None if math.isinf(self._timeout_seconds) else self._timeout_seconds
        try:
            async with asyncio.timeout(limit):
                return await asyncio.shield(result)
        except TimeoutError:
            self._overdue = f"function {name} ran longer than {limit} s"
            self._kill()
            return await result
        finally:
            self._running.pop(invocation.id, None)
            if not self._running:
                self._at_rest.set()

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _begin(self) -> tuple[RpcFunctionMetadata, ...]:
        """Start a process, wait until it has loaded the app, and watch it from then on."""
        ours, theirs = socket.socketpair()
        kept, lifeline = os.pipe()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "local.functions_host.worker", "--app", str(self._app)),
                *("--region", self._region, "--level", str(logging.getLogger().level)),
                *("--channel", str(theirs.fileno()), "--lifeline", str(kept)),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), kept),
            )
        os.close(kept)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        match await frames.read(reader):
            case WorkerReady(functions):
                self._ready.set()
                self._watcher = asyncio.create_task(self._watch(reader, self._process, lifeline))
                return functions
            case None:
                raise Unsupported("the app does not load: its worker ended")
            case refused:
                self._kill()
                raise Unsupported(refused.reason)

    async def _watch(
        self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process, lifeline: int
    ) -> None:
        """Hand answers over until the process has ended, and then see to the next one."""
        while answer := await frames.read(reader):
            result = self._running.get(answer.id)
            if result is not None and not result.done():
                result.set_result(answer.result)
        self._ready.clear()
        status = await process.wait()
        self._writer.close()
        os.close(lifeline)
        reason = self._overdue or f"Language Worker Process exited. Pid={process.pid}, {status}"
        log.error("%s: its worker process ends, with all that it is doing", reason)
        if not self._overdue:
            now = time.monotonic()
            if self._deaths and now - self._deaths[-1] > DEATHS_SECONDS:
                self._deaths.clear()
            self._deaths.append(now)
        self._overdue = ""
        await self._fail_running(reason)
        if len(self._deaths) >= DEATHS_MAX:
            log.error(
                "Exceeded language worker restart retry count for runtime:python. Shutting down "
                "and proactively recycling the Functions Host to recover"
            )
            self._give_up()
            return
        if self._replaced_at is not None:
            await asyncio.sleep(self._replaced_at + RESTART_SECONDS - time.monotonic())
        self._replaced_at = time.monotonic()
        try:
            await self._begin()
        except Unsupported as error:
            log.error("no new worker: %s", error)
            self._give_up()
        else:
            log.warning("a new worker runs functions")

    def _give_up(self) -> None:
        """Ask for the end of the host, and let all that waits for a worker fail."""
        self.exhausted.set()
        self._ready.set()

    async def _fail_running(self, reason: str) -> None:
        """Fail what was under way: all at once, or one by one where it is no first worker."""
        failed = InvocationFailed(reason, is_process_lost=True)
        self._fails_one_by_one = self._replaced_at is not None
        for count, result in enumerate([*self._running.values()]):
            if self._fails_one_by_one:
                await asyncio.sleep(FAILURE_SECONDS * count)
            if not result.done():
                result.set_result(failed)
        self._fails_one_by_one = False
