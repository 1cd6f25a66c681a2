"""A feed over Spark Connect: no driver of its own, and steps in the account."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from local.cloud import Cloud
from local.testing.patience import run_patiently, until
from spark import package
from tests.spark.connected_feed import RESULT_FILE, ROWS_FILE
from tests.spark.test_package import SMALL, SUBMIT, bodies

# What a client needs besides: pip install "pyspark[connect]".
CLIENT = ("grpc_status", "zstandard")
MISSING = [name for name in CLIENT if find_spec(name) is None]
pytestmark = [
    pytest.mark.spark,
    pytest.mark.proof,
    pytest.mark.skipif(bool(MISSING), reason=f"not run: no {' and '.join(MISSING)}"),
]

ROOT = Path(__file__).parents[2]
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
FEED_SECONDS_MAX = 280.0
ROWS = [{"account": f"acc-{n % 3}", "line": n, "amount": n * 10} for n in range(9)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A Connect server whose tasks know of this checkout nothing but what a client gives them."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    confs = SMALL | {"spark.connect.grpc.binding.port": str(port)}
    words = [word for name, value in confs.items() for word in ("--conf", f"{name}={value}")]
    command = [str(SUBMIT), "--master", "local[2,4]", *words, "--class", SERVER, "spark-internal"]
    kept = ("PATH", "HOME", "JAVA_HOME")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    until(lambda: answers(port), seconds=120, what="the Connect server")
    yield f"sc://127.0.0.1:{port}"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def fed(server: str, folder: Path, cloud: Cloud, *point: str) -> subprocess.CompletedProcess[str]:
    path = (str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path)}
    environment |= {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "0", "LOCKSTEP_REGIONS": "east,west"}
    environment |= {"Cosmos": cloud.cosmos.connection_string}
    for name, each in cloud.namespaces.items():
        environment[f"ServiceBus_{name}"] = each.connection_string
    command = [sys.executable, "-m", "tests.spark.connected_feed", server, str(folder), *point]
    return run_patiently(command, seconds=FEED_SECONDS_MAX, env=environment)


def test_what_a_client_feeds_and_feeds_again_after_its_death_is_sent_as_it_was_bound(
    server: str, cloud: Cloud, tmp_path: Path
) -> None:
    package.main([f"--to={tmp_path}"])
    (tmp_path / ROWS_FILE).write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    for point in ("bind", "mark_sent"):
        assert fed(server, tmp_path, cloud, point).returncode == -signal.SIGKILL
    done = fed(server, tmp_path, cloud)

    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads((tmp_path / RESULT_FILE).read_text())["sending"]
    # Its tasks have recorded in the account that both lanes were sent.
    assert (result["resumed"], result["counts"]["sent"]) == (0, 0)
    assert result["standings"]["unchanged"] == 9
    for space in cloud.namespaces.values():
        for n in range(3):
            found = bodies(space.connection_string, f"acc-{n}", 9)
            assert found == [f'{{"amount":{(n + 3 * k) * 10}}}' for k in range(3)]
