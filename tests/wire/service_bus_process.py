"""A namespace in a process of its own, for tests that kill it or want all of a processor."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVE = """
import sys, threading
from pathlib import Path
from local.faults import Action, Fault
from tests.wire.service_bus import running_bus
data_dir, rate = sys.argv[1:]
with running_bus(Path(data_dir) if data_dir else None) as bus:
    bus.faults.arm(Fault("servicebus.east", Action.LOSE_LOCK, "complete", rate=float(rate)))
    print(bus.namespace.connection_string, flush=True)
    threading.Event().wait()
"""


@dataclass(frozen=True, slots=True)
class BusProcess:
    """A running process and the namespace it serves."""

    process: subprocess.Popen[str]
    connection_string: str

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self.process.kill()
        self.process.wait()


@contextmanager
def serving_bus(data_dir: Path | None = None, *, lost_locks: float = 0) -> Iterator[BusProcess]:
    """Serve what `running_bus` serves; a rate of completions may lose their lock first."""
    command = [sys.executable, "-c", SERVE, str(data_dir or ""), str(lost_locks)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield BusProcess(process, process.stdout.readline().strip())
        finally:
            process.kill()
