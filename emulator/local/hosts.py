"""The Functions hosts of all regions, each a child process that can be killed and restarted."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Any
from urllib.parse import urlsplit

import psutil

READY_SECONDS_MAX = 120.0
DRAIN_SECONDS_MAX = 30.0
LOG_TAIL_BYTES = 2000
# With this status a host ends whose workers died too often. The platform starts it again.
RECYCLED = 75


class HostFailed(RuntimeError):
    """A host did not become ready; the message ends with the tail of its log."""


class HostState(StrEnum):
    RUNNING = "running"
    STOPPED = "stopped"  # on request
    DEAD = "dead"  # by itself


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host to run: an app, in a region, with app settings on top of the inherited environment."""

    region: str
    app: Path
    settings: Mapping[str, str]
    log: Path
    port: int = 0


class HostProcess:
    """A host that keeps its port from one start to the next.

    It holds the child's stdin open, so that the child ends with us even when we are killed.
    """

    def __init__(self, spec: HostSpec) -> None:
        self._spec = spec
        self._port = spec.port
        self._process: subprocess.Popen[bytes] | None = None
        self._ready: Future[bytes] = Future()
        self._launching = Lock()
        self._was_stopped = False
        self.url = ""

    @property
    def state(self) -> HostState:
        if self._process is not None and self._process.poll() is None:
            return HostState.RUNNING
        return HostState.STOPPED if self._was_stopped else HostState.DEAD

    def describe(self) -> dict[str, Any]:
        pid = self._process.pid if self._process and self.state is HostState.RUNNING else None
        return {"state": self.state.value, "url": self.url, "pid": pid, "log": str(self._spec.log)}

    def launch(self) -> None:
        """Begin to start; does nothing when it runs."""
        with self._launching:
            if self.state is HostState.RUNNING:
                return
            self._was_stopped = False
            self._ready = Future()
            spec = self._spec
            command = [sys.executable, "-m", "local.functions_host", "--app", str(spec.app)]
            command += ["--port", str(self._port), "--region", spec.region]
            # The directory that holds `local` comes first, whatever the working directory is.
            paths = [str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH", "")]
            path = os.pathsep.join(filter(None, paths))
            spec.log.parent.mkdir(parents=True, exist_ok=True)
            with spec.log.open("ab") as log:
                self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env={**os.environ, **spec.settings, "PYTHONPATH": path},
                    start_new_session=True,
                )
        Thread(target=self._follow, args=(self._process, self._ready), daemon=True).start()

    def await_ready(self) -> None:
        """Return when what was launched answers; raises HostFailed, and nothing is left of it."""
        try:
            ready = json.loads(self._ready.result(READY_SECONDS_MAX))
            self.url = str(ready["url"])
        except (TimeoutError, ValueError, KeyError, TypeError) as error:
            self.kill()
            tail = self._spec.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            raise HostFailed(
                f"the host of region {self._spec.region} did not start; its log ends with:\n{tail}"
            ) from error
        self._port = urlsplit(self.url).port or 0

    def kill(self) -> None:
        """Send SIGKILL to the host and its worker: nothing is drained."""
        self._was_stopped = True
        if self._process is None:
            return
        # The group of one that has ended may be somebody else's by now.
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._reap(self._process)

    def kill_worker(self) -> None:
        """Send SIGKILL to the worker alone; raises HostFailed where there is none."""
        if self.state is not HostState.RUNNING or self._process is None:
            raise HostFailed(f"the host of region {self._spec.region} does not run")
        workers = psutil.Process(self._process.pid).children()
        if not workers:
            raise HostFailed(f"the host of region {self._spec.region} has no worker at present")
        for worker in workers:
            worker.kill()

    def terminate(self) -> None:
        self._was_stopped = True
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def stop(self) -> None:
        """Send SIGTERM, then wait until it has drained; SIGKILL when that takes too long."""
        self.terminate()
        if self._process is None:
            return
        try:
            self._process.wait(DRAIN_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap(self._process)

    def _follow(self, process: subprocess.Popen[bytes], ready: Future[bytes]) -> None:
        """Wait for a process to end, and start it again where it ended to be started again."""
        read_first_line(process.stdout, ready)
        if process.wait() == RECYCLED and not self._was_stopped and process is self._process:
            if process.stdin is not None:
                process.stdin.close()
            self.launch()

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


class Hosts:
    """One host process per region. Actions on one region do not touch the others."""

    def __init__(self, specs: Sequence[HostSpec]) -> None:
        self._processes = {spec.region: HostProcess(spec) for spec in specs}

    @property
    def urls(self) -> dict[str, str]:
        return {region: process.url for region, process in self._processes.items()}

    def listing(self) -> dict[str, dict[str, Any]]:
        return {region: process.describe() for region, process in self._processes.items()}

    def start(self) -> None:
        """Start all side by side; when one fails all are killed and HostFailed is raised."""
        try:
            for process in self._processes.values():
                process.launch()
            for process in self._processes.values():
                process.await_ready()
        except BaseException:
            for process in self._processes.values():
                process.kill()
            raise

    def stop(self) -> None:
        """Send SIGTERM to all, then wait for all to drain."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.stop()

    def act(self, region: str, action: str) -> dict[str, Any]:
        """Kill, stop or start one host, or kill its worker; returns its description after that.

        Raises KeyError for an unknown region, ValueError for an unknown action, HostFailed.
        """
        process = self._processes[region]
        match action:
            case "kill":
                process.kill()
            case "kill-worker":
                process.kill_worker()
            case "stop":
                process.stop()
            case "start":
                process.launch()
                process.await_ready()
            case _:
                raise ValueError(f"action must be kill, kill-worker, stop or start, not {action!r}")
        return process.describe()


def read_first_line(stream: IO[bytes] | None, first: Future[bytes]) -> None:
    """Set a pipe's first line, empty if there is none; read on, so that its writer never blocks."""
    if stream is None:
        first.set_result(b"")
        return
    with stream:
        first.set_result(stream.readline())
        for _ in stream:
            continue
