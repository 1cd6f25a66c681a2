"""The local cloud as a child process, and what its control endpoint says."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bench.systems import ROOT

POLL_SECONDS = 0.05
ASK_SECONDS_MAX = 90.0

# Component, operation and status; and how often that was, for how many request units.
type Row = tuple[str, str, str]
type Tallies = Mapping[Row, tuple[int, float]]


class BenchFailed(Exception):
    """The measurement could not be made; the text says why."""


@dataclass(frozen=True, slots=True)
class Cloud:
    """A running local cloud; `contract` is the line it printed when it was ready."""

    contract: Mapping[str, Any]
    pid: int

    def ask(self, path: str, document: object = None) -> Any:
        """What the control endpoint answers to a GET, or to a POST of a document.

        Raises BenchFailed with its reason when it refuses.
        """
        body = None if document is None else json.dumps(document).encode()
        request = Request(self.contract["control"] + path, body)  # noqa: S310 - our own endpoint
        try:
            with urlopen(request, timeout=ASK_SECONDS_MAX) as answer:  # noqa: S310
                return json.load(answer)
        except HTTPError as error:
            raise BenchFailed(f"{path}: {error.read().decode()}") from error

    def tallies(self) -> Tallies:
        """What was counted since the start."""
        counters = self.ask("/counters")
        del counters["queues"]
        return {
            (component, operation, status): (row["count"], row["request_units"])
            for component, operations in counters.items()
            for operation, statuses in operations.items()
            for status, row in statuses.items()
        }

    def counted(self, component: str, operation: str) -> int:
        """How often an operation was counted, however it ended."""
        rows = self.ask("/counters").get(component, {}).get(operation, {})
        return sum(row["count"] for row in rows.values())

    def act(self, region: str, action: str) -> Any:
        """Stop or start a region's host; returns when that is done."""
        return self.ask(f"/hosts/{region}", {"action": action})

    def until_completed(self, region: str, total: int, *, seconds: float) -> None:
        """Wait until a region has settled so many messages since the start of the cloud."""
        component = f"servicebus.{region}"
        until(
            lambda: self.counted(component, "complete") >= total,
            seconds=seconds,
            what=f"{region} did not complete {total} messages",
        )


@contextmanager
def running(arguments: Sequence[str], logs: Path) -> Iterator[Cloud]:
    """`python -m local serve` with these arguments; it ends when we do, in any way."""
    logs.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "local", "serve", "--until-stdin-ends", *arguments]
    command += ["--logs", str(logs)]
    pipe, errors = subprocess.PIPE, logs / "serve.log"
    with (
        errors.open("wb") as log,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log, cwd=ROOT) as process,  # noqa: S603 - our own module
    ):
        try:
            line = process.stdout.readline() if process.stdout else b""
            if not line:
                raise BenchFailed(f"the local cloud did not start:\n{errors.read_text()}")
            yield Cloud(json.loads(line), process.pid)
        finally:
            process.terminate()


def setting_arguments(settings: Mapping[str, str]) -> list[str]:
    """App settings as arguments of `serve`."""
    return [word for name, value in settings.items() for word in ("--setting", f"{name}={value}")]


def until(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait for a condition; raises BenchFailed when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{what} within {seconds:.0f} s")
        time.sleep(POLL_SECONDS)
