"""Azure on one machine as a child process: `python -m local serve`, killed and started again."""

import json
import os
import random
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from local.testing.children import Child, ChildFailed
from local.testing.control import ControlClient, ControlRefused
from local.testing.patience import Patience

READY_SECONDS_MAX = 120.0
LOOK_SECONDS = 1.0
STOP_SECONDS_MAX = 60.0
REFRESH_SECONDS_MAX = 10.0
# A cloud takes a row of so many ports, below those that the system gives to clients.
PORTS = 16
PORT_BASES = (20_000, 30_000)
RESTART_TRIES = 5
RESTART_PAUSE_SECONDS = 1.0
HOST = "127.0.0.1"


@dataclass(slots=True)
class CloudProcess:
    """A local cloud; `contract` is the line that it printed when it was ready.

    Killed, it can be started again on the ports and the data it was given.
    """

    command: tuple[str, ...]
    logs: Path
    child: Child
    contract: Mapping[str, Any]
    cwd: Path | None = None
    starts: Iterator[int] = field(default_factory=lambda: count(2))

    @property
    def control(self) -> ControlClient:
        return ControlClient(self.contract["control"])

    @property
    def queue(self) -> str:
        return str(self.contract["queue"])

    @property
    def regions(self) -> tuple[str, ...]:
        """All of them, the primary first."""
        return tuple(self.contract["servicebus"])

    @property
    def cosmos_connection(self) -> str:
        cosmos = self.contract["cosmos"]
        return f"AccountEndpoint={cosmos['endpoint']};AccountKey={cosmos['key']};"

    @contextmanager
    def open_container(self, name: str = "journal") -> Iterator[Any]:
        """Open a container by plain azure-cosmos, whose types say Any of nearly everything.

        What is read costs request units like any client's: take the counters first.
        """
        from azure.cosmos import CosmosClient

        account = self.contract["cosmos"]
        with CosmosClient(account["endpoint"], account["key"]) as client:
            # A new client looks at its endpoints in a thread, which writes to the response headers
            # that a query is reading: "OrderedDict mutated during iteration".
            for thread in threading.enumerate():
                if thread.name == "cosmos-endpoint-refresh":
                    thread.join(REFRESH_SECONDS_MAX)
            database = client.get_database_client(account["database"])
            yield database.get_container_client(self.contract["containers"].get(name, name))

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        return self.child.stop(number)

    def kill(self) -> None:
        """End by SIGKILL the cloud and its hosts, which are processes of their own."""
        try:
            hosts = [int(h["pid"]) for h in self.control.read_hosts().values() if h["pid"]]
        except ControlRefused:
            hosts = []
        self.child.kill()
        self.child.stop()
        for pid in hosts:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start(self) -> None:
        """Start it again on what it left; raises ChildFailed when it does not come up."""
        for tried in range(1, RESTART_TRIES + 1):
            try:
                log = self.logs / f"cloud-{next(self.starts)}.log"
                self.child, self.contract = launch_cloud(self.command, log, self.cwd)
                return
            except ChildFailed:
                # A port may be held for a moment by what is still ending.
                if tried == RESTART_TRIES:
                    raise
                time.sleep(RESTART_PAUSE_SECONDS)


@contextmanager
def running_cloud(
    *arguments: str,
    logs: Path | None = None,
    settings: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    program: Sequence[str] = ("-m", "local"),
) -> Iterator[CloudProcess]:
    """Run `serve` with these arguments and app settings; it ends when we do, in any way.

    Without --app and --config it serves the app and the configuration in `cwd`. Raises ChildFailed
    when it does not become ready. Without `logs` nothing of them is kept.
    """
    with ExitStack() as stack:
        command = [sys.executable, *program, "serve", "--until-stdin-ends", *arguments]
        if logs is None:
            logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="testbed-")))
        if "--logs" not in arguments:
            command += ["--logs", str(logs)]
        for name, value in (settings or {}).items():
            command += ["--setting", f"{name}={value}"]
        child, contract = launch_cloud(command, logs / "cloud-1.log", cwd)
        cloud = CloudProcess(tuple(command), logs, child, contract, cwd)
        try:
            yield cloud
        finally:
            cloud.stop()


def launch_cloud(
    command: Sequence[str], log: Path, cwd: Path | None
) -> tuple[Child, Mapping[str, Any]]:
    """Start a cloud; return it with the line it prints when it is ready, or raise ChildFailed."""
    child = Child(command, log=log, cwd=cwd, is_piped=True, grace_seconds=STOP_SECONDS_MAX)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(child.output, selectors.EVENT_READ)
            patience = Patience(READY_SECONDS_MAX)
            while not (is_heard := selector.select(LOOK_SECONDS)) and not patience.is_over():
                continue
            line = child.output.readline() if is_heard else b""
        if not line:
            child.stop()
            raise child.failure("the local cloud did not start")
        return child, json.loads(line)
    except BaseException:
        child.stop()
        raise


@contextmanager
def reserve_ports(ports: int = PORTS, base: int | None = None) -> Iterator[int]:
    """Hold a row of ports that a cloud may listen on; yields the first of them.

    With a base it is that row. Raises OSError where another program listens on one of it, or no
    free row was found.

    The ports are bound and not listened on: on Linux a listener that shares its address
    (SO_REUSEADDR) gets them, and nobody who asks for any free port does.
    """
    with ExitStack() as row:
        tried = random.sample(range(*PORT_BASES), 100)
        rows = (one for one in tried if all(map(is_free, range(one, one + ports))))
        first = next(rows, None) if base is None else base
        if first is None:
            raise OSError("no row of free ports was found")
        for port in range(first, first + ports):
            holder = row.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind((HOST, port))
        yield first


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def is_open(port: int, host: str = HOST) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0
