"""A Functions host as a process of its own, for tests: started, asked, ended."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from azure.servicebus import ServiceBusClient
from azure.servicebus._pyamqp.client import AMQPClient

from local.testing.answers import KEY, Answer, request
from local.testing.patience import wait_for_end
from wire.service_bus import HURRIED

ROOT = Path(__file__).parents[2]
SAMPLE_APP = Path(__file__).parent / "sample_app"
NOWHERE = (
    "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true"
)
DEFAULTS = {
    "SAMPLE_QUEUE": "sample",
    "SAMPLE_PREFIX": "east",
    "SAMPLE_SCHEDULE": "*/1 * * * * *",
    "ServiceBus": NOWHERE,
    "Cosmos": "AccountEndpoint=http://127.0.0.1:1/;AccountKey=a2V5;",
}
END_SECONDS_MAX = 60.0


class HostProcess:
    """A running host; its one line on stdout is read, its log is kept."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        assert process.stdout is not None
        self.process = process
        self.log_path = log
        line = process.stdout.readline()
        assert line, f"the host did not start: {log.read_text()}"
        self.ready: dict[str, Any] = json.loads(line)
        self.url: str = self.ready["url"]

    def request(
        self,
        path: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """Send one request to it."""
        return request(self.url + path, method, headers, body)

    def is_there(self) -> bool:
        """Whether it answers; while it starts anew nobody listens."""
        try:
            return self.request("/admin/host/ping").status == 200
        except OSError:  # refused, or reset where it ends just then
            return False

    def worker(self) -> int:
        """The process in which its functions run now."""
        status = self.request("/admin/host/status", headers=KEY).body
        return int(json.loads(status)["extra"]["worker"])

    def seen(self, kind: str) -> list[Any]:
        """What the sample app has noted of one kind."""
        found: list[Any] = json.loads(self.request(f"/api/seen/{kind}").body)
        return found

    def log(self) -> list[dict[str, str]]:
        """The log so far, line by line."""
        return [json.loads(line) for line in self.log_path.read_text().splitlines()]

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Signal the process and return its exit status."""
        self.process.send_signal(how)
        return wait_for_end(self.process, seconds=END_SECONDS_MAX)


@contextmanager
def running_host(
    tmp_path: Path, app: Path = SAMPLE_APP, name: str = "host", **settings: str
) -> Iterator[HostProcess]:
    """Run a host for one `with` block; whatever happens, it is gone afterwards."""
    log = tmp_path / f"{name}.log"
    process = start(app, log, settings)
    try:
        yield HostProcess(process, log)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@contextmanager
def bus_client(connection_string: str) -> Iterator[ServiceBusClient]:
    """A client that does not wait up to a second for its keep-alive thread when it closes."""
    with (
        patch.object(AMQPClient, "_keep_alive", lambda _: None),
        patch("azure.servicebus._servicebus_sender.time", HURRIED),
        ServiceBusClient.from_connection_string(connection_string) as client,
    ):
        yield client


def start(app: Path, log: Path, settings: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start the process with the sample's settings, the given ones on top."""
    command = [sys.executable, "-m", "local.functions_host", "--app", str(app), "--region", "east"]
    with log.open("w") as stderr:
        return subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **DEFAULTS, **settings},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
