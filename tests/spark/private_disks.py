"""A standalone cluster of Spark whose machines share one folder of their disks, and nothing else.

Each machine is a process in a mount namespace of its own. What it writes elsewhere, in /tmp or in
/mnt, no other machine sees, and this checkout is at no machine on any path. All share the network
of this one, with an address for each.
"""

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Where each machine has the folder, the Python environment, and what is its own.
LAKE, PYTHON, OWN = Path("/mnt/lake"), Path("/mnt/python"), Path("/mnt/own")
MASTER_CLASS = "org.apache.spark.deploy.master.Master"
WORKER_CLASS = "org.apache.spark.deploy.worker.Worker"
HEAD, WORKERS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
MACHINE = """\
set -e
mount --make-rprivate /
mount -t tmpfs none /mnt
mkdir /mnt/lake /mnt/python /mnt/own
mount --bind "$MACHINE_LAKE" /mnt/lake
mount --bind "$MACHINE_PYTHON" /mnt/python
mount -t tmpfs none /tmp
for place in $MACHINE_HIDDEN; do mount -t tmpfs none "$place"; done
cd /mnt/own
exec "$@"
"""
KEPT = ("PATH", "HOME", "JAVA_HOME")


def can_have_machines() -> bool:
    """Say whether this process may make mount namespaces."""
    tried = subprocess.run(
        ["unshare", "-m", "mount", "--make-rprivate", "/"], check=False, capture_output=True
    )
    return tried.returncode == 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the cluster: it has the folder `lake` as LAKE, and an address."""

    lake: Path
    address: str

    @property
    def environment(self) -> dict[str, str]:
        python = Path(sys.prefix).resolve()
        # A package that is installed in place has its path in the environment's folder.
        hidden = {str(ROOT), str(python.parent)}
        spark = PYTHON / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix) / "pyspark"
        return {name: os.environ[name] for name in KEPT if name in os.environ} | {
            "MACHINE_LAKE": str(self.lake),
            "MACHINE_PYTHON": str(python),
            "MACHINE_HIDDEN": " ".join(sorted(hidden)),
            "SPARK_HOME": str(spark),
            "SPARK_LOCAL_IP": self.address,
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": str(PYTHON / "bin/python"),
            "PYSPARK_DRIVER_PYTHON": str(PYTHON / "bin/python"),
        }

    def command(self, words: Sequence[str]) -> list[str]:
        return ["unshare", "-m", "sh", "-c", MACHINE, "machine", *words]

    def start(self, words: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                self.command(words),
                env=self.environment,
                cwd="/",
                stdout=output,
                stderr=output,
                start_new_session=True,
            )


@contextmanager
def cluster(lake: Path, logs: Path, port: int) -> Iterator[str]:
    """A master and two workers; where the master is."""
    place = f"spark://{HEAD}:{port}"
    head, start = Machine(lake, HEAD), str(PYTHON / "bin/spark-class")
    with ExitStack() as running:
        words = [start, MASTER_CLASS, "--host", HEAD, "--port", str(port), "--webui-port", "0"]
        running.callback(end, head.start(words, logs / "master.log"))
        for number, address in enumerate(WORKERS):
            sizes = ["--cores", "1", "--memory", "700m", "--webui-port", "0"]
            own = ["--host", address, "--work-dir", str(OWN / "work")]
            words = [start, WORKER_CLASS, *own, *sizes, place]
            machine = Machine(lake, address)
            running.callback(end, machine.start(words, logs / f"worker-{number}.log"))
        yield place


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group, with its children."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
