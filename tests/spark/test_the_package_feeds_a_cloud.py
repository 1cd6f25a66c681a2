"""What a cluster is given, run as a cluster runs it: spark-submit, and no checkout on the path."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient

from local.cloud import Cloud
from local.testing.patience import run_patiently
from spark import package
from spark.package import ARCHIVE, JOB
from tests.cloud import running_cloud
from tests.spark.environment import settings_for

pytestmark = [pytest.mark.spark, pytest.mark.wire, pytest.mark.proof]

SUBMIT = Path(sys.executable).with_name("spark-submit")
SUBMIT_SECONDS_MAX = 280.0
# Small data, and Java that need not get fast.
SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
ROWS = [{"account": f"acc-{n % 2}", "line": n, "amount": n * 10} for n in range(6)]
MAPPING = {
    "format": "json",
    "columns": {"account": "string", "line": "int", "amount": "int"},
    "session": "account",
    "key": ["line"],
    "order": ["line"],
    "body": ["amount"],
    "type": "account.add",
}


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    """Two namespaces and an account; nobody takes what is sent."""
    with running_cloud(tmp_path / "logs") as cloud:
        yield cloud


def settings(cloud: Cloud) -> dict[str, str]:
    """The app settings of a job; no copy is kept back for later."""
    return settings_for(cloud, LOCKSTEP_SECONDARY_DELAY_SECONDS="0")


def submitted(
    folder: Path, job: str, cloud: Cloud, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a job of the package in its folder."""
    confs = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    command = [str(SUBMIT), "--master", "local[2,4]", *confs]
    command += ["--py-files", str(folder / ARCHIVE), str(folder / JOB), job]
    command += ["--source=rows.json", "--mapping=mapping.json", "--group=bank", *words]
    inherited = {
        name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ
    }
    return run_patiently(
        command,
        seconds=SUBMIT_SECONDS_MAX,
        cwd=folder,
        env=inherited
        | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        | settings(cloud),
    )


def bodies(connection: str, session: str, count: int) -> list[str]:
    """The first messages of a session in the input queue of a namespace."""
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver("lockstep", session_id=session) as receiver,
    ):
        return [str(message) for message in receiver.peek_messages(count)]


def test_a_file_is_fed_and_the_journal_is_read_by_nothing_but_the_package(
    tmp_path: Path, cloud: Cloud
) -> None:
    package.main([f"--to={tmp_path}"])
    (tmp_path / "rows.json").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n")
    (tmp_path / "mapping.json").write_text(json.dumps(MAPPING))

    fed = submitted(tmp_path, "feed", cloud, "--summary=sum.json")

    assert fed.returncode == 0, fed.stderr[-3000:]
    assert json.loads((tmp_path / "sum.json").read_text())["sent"] == 6
    for space in cloud.namespaces.values():
        assert bodies(space.connection_string, "acc-1", 4) == [
            '{"amount":10}',
            '{"amount":30}',
            '{"amount":50}',
        ]

    # spark-submit puts stderr and stdout into one.
    result = submitted(tmp_path, "reconcile", cloud, "--page=result.html", "--quiet")

    assert result.returncode == 1, result.stderr[-3000:]
    assert result.stdout.splitlines()[:2] == ["6 events expected", "6 missing"]
    assert "6 findings in 2 of 2 sessions." in (tmp_path / "result.html").read_text()
