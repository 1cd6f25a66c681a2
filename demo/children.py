"""Child processes that never outlive the demo, each with a log to look at when it fails."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

TAIL_LINES = 15
POLL_SECONDS = 0.05
ROOT = Path(__file__).resolve().parent.parent


class ChildFailed(Exception):
    """A child ended before its time, or with an error; the message ends with its log's tail."""


class Child:
    """A process in a group of its own; leaving the `with` block stops the whole group.

    Its standard input stays open as long as we live and says nothing: a child that waits for its
    end learns of our death even when nobody could tell it.

    Standard error goes to the log, and so does standard output unless a pipe is asked for. The
    child is asked with SIGTERM and, when it takes longer than `grace_seconds`, killed.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        is_piped: bool = False,
        grace_seconds: float = 20.0,
    ) -> None:
        self.log = log
        self.grace_seconds = grace_seconds
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - our own modules, no shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if is_piped else file,
                stderr=file,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                cwd=ROOT,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def output(self) -> IO[bytes]:
        """The pipe of standard output; only a child that was asked for one has it."""
        if self._process.stdout is None:
            raise ValueError("this child writes to its log")
        return self._process.stdout

    @property
    def is_running(self) -> bool:
        """Whether the process itself is still there."""
        if self._process.returncode is not None:
            return False
        # WNOWAIT leaves the process a zombie: its group cannot become somebody else's meanwhile.
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._process.pid, options) is None

    @property
    def pid(self) -> int:
        """The process id, which is also that of its group."""
        return self._process.pid

    def kill(self) -> None:
        """End the whole group with SIGKILL, as a power cut would; `stop` says how it ended."""
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)

    def stop(self) -> int:
        """End the process and whatever is left of its group; return its exit status."""
        if self._process.returncode is not None:
            return self._process.returncode
        try:
            if self.is_running:
                self._process.terminate()
            self._wait(self.grace_seconds)
        finally:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        return self._process.wait()

    def tail(self) -> str:
        """Return the end of the log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  | {line}" for line in lines[-TAIL_LINES:])

    def failure(self, what: str) -> ChildFailed:
        """Return the error that says what went wrong and shows the log."""
        return ChildFailed(f"{what}; the end of {self.log}:\n{self.tail()}")

    def _wait(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.is_running and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
