"""A namespace in a process of its own, for tests that kill it or want all of a processor."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parents[1]
SERVE = """
import json, sys
from pathlib import Path
from local.faults import Fault
from wire.service_bus import running_bus
data_dir, fault = sys.argv[1:]
with running_bus(Path(data_dir) if data_dir else None) as bus:
    if given := json.loads(fault):
        bus.faults.arm(Fault.parse({"component": "servicebus.east", **given}))
    print(bus.namespace.connection_string, flush=True)
    for queue in sys.stdin:
        print(json.dumps(bus.namespace.depth(queue.strip())), flush=True)
"""


@dataclass(frozen=True, slots=True)
class BusProcess:
    """A running process and the namespace it serves."""

    process: subprocess.Popen[str]
    connection_string: str

    def depth(self, queue: str) -> dict[str, int]:
        """Messages by state."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(queue, file=self.process.stdin, flush=True)
        depth: dict[str, int] = json.loads(self.process.stdout.readline())
        return depth

    def memory_bytes(self) -> int:
        """Resident memory now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving_bus(data_dir: Path | None = None, **fault: str | float) -> Iterator[BusProcess]:
    """Serve what `running_bus` serves, under a fault if its fields are given."""
    command = [sys.executable, "-c", SERVE, str(data_dir or ""), json.dumps(fault)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=TESTS, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            yield BusProcess(process, process.stdout.readline().strip())
        finally:
            process.kill()
