"""`python -m local serve` as a child process of a test."""

import json
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from local.loopback import held_port

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 90.0
STOP_SECONDS_MAX = 60.0
# Where a row of ports is looked for, and how long it is.
BASES = (20_000, 30_000)
PORTS = 16


@dataclass(frozen=True, slots=True)
class Served:
    """A running cloud: its process and the line it printed."""

    process: subprocess.Popen[bytes]
    contract: dict[str, Any]

    def control(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """One request to the control endpoint; the answer is (status, document)."""
        return http(method, self.contract["control"] + path, body)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS_MAX)


def http(method: str, url: str, body: Any = None) -> tuple[int, Any]:
    """One HTTP request; JSON in, JSON (or text) out."""
    parts = urlsplit(url)
    connection = HTTPConnection(str(parts.hostname), parts.port, timeout=START_SECONDS_MAX)
    try:
        payload = body if body is None or isinstance(body, str) else json.dumps(body)
        connection.request(method, parts.path or "/", payload)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    is_json = "json" in (response.getheader("Content-Type") or "")
    return response.status, json.loads(text) if is_json and text else text


def launch(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the process and leave it alone."""
    return subprocess.Popen(
        [sys.executable, "-m", "local", "serve", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    """Stop a process in the way that leaves nothing behind, or else by force."""
    process.terminate()
    try:
        process.communicate(timeout=STOP_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


@contextmanager
def serving(*arguments: str) -> Iterator[Served]:
    """Start, wait for the line, and stop at the end what still runs."""
    process = launch(arguments)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate(timeout=STOP_SECONDS_MAX)[1].decode())
        yield Served(process, json.loads(line))
    finally:
        end(process)


@contextmanager
def row_of_ports() -> Iterator[int]:
    """The first of a row of ports that a cloud may take; nobody else does meanwhile.

    They lie below those that the system gives to clients, which come and go while a test runs.
    """
    base = free_base()
    with ExitStack() as row:
        for port in range(base, base + PORTS):
            row.enter_context(held_port(port, "a test"))
        yield base


def free_base() -> int:
    """A port that nobody has, listening or not, as nobody has those above it."""
    for _ in range(100):
        base = random.randrange(*BASES)
        if all(is_free(port) for port in range(base, base + PORTS)):
            return base
    raise AssertionError("no row of free ports was found")


def is_free(port: int) -> bool:
    """Whether a port could be had for oneself."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def is_running(pid: int) -> bool:
    """Whether a process exists."""
    return Path(f"/proc/{pid}").exists()
