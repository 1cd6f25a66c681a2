"""Child processes that never outlive us, each with a log to look at when it fails."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

from local.testing.failures import CloudFailed
from local.testing.patience import Patience

TAIL_LINES = 15
POLL_SECONDS = 0.05


class ChildFailed(CloudFailed):
    """A child ended before its time, or with an error; the message ends with its log's tail."""


class Child:
    """A process in a group of its own; leaving the `with` block stops the whole group.

    Its standard input stays open as long as we live and says nothing: a child that waits for its
    end learns of our death even when nobody could tell it.

    Standard error goes to the log, and so does standard output unless a pipe is asked for. The
    child is asked with SIGTERM and, when it takes longer than `grace_seconds` of fair time, killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        is_piped: bool = False,
        grace_seconds: float = 20.0,
    ) -> None:
        self.log = log
        self.grace_seconds = grace_seconds
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - the caller's own programs, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if is_piped else file,
                stderr=file,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                cwd=cwd,
            )
        # Also the id of its group.
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def output(self) -> IO[bytes]:
        if self._process.stdout is None:
            raise ValueError("this child writes to its log")
        return self._process.stdout

    @property
    def is_running(self) -> bool:
        if self._process.returncode is not None:
            return False
        # WNOWAIT leaves the process a zombie: its group cannot become somebody else's meanwhile.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is None

    def kill(self) -> None:
        """End the whole group with SIGKILL, as a power cut would; `stop` says how it ended."""
        if self._process.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Signal the process, end what is left of its group, and return its exit status."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            if self.is_running:
                self._process.send_signal(number)
            patience = Patience(self.grace_seconds)
            while self.is_running and not patience.is_over():
                time.sleep(POLL_SECONDS)
        finally:
            os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        return self._process.wait()

    def failure(self, what: str) -> ChildFailed:
        lines = self.log.read_text(errors="replace").splitlines()
        tail = "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])
        return ChildFailed(f"{what}; the end of {self.log}:\n{tail}")


def wait_for_parent_to_end() -> None:
    """Return when standard input ends, which a parent holds open as long as it lives."""
    while os.read(sys.stdin.fileno(), 4096):
        continue


def end_with_parent() -> None:
    """Kill this process as soon as its parent is gone; nothing can hold that up."""

    def watch() -> None:
        wait_for_parent_to_end()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def read_cpu_seconds(pid: int, *, with_children: bool = False) -> float:
    """Return the processor time of a process so far, with that of its own children if asked."""
    import psutil

    process = psutil.Process(pid)
    processes = [process, *process.children()] if with_children else [process]
    return float(sum(sum(one.cpu_times()[:2]) for one in processes))
