"""What a cluster is given: complete on its own, and run by spark-submit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest
from azure.servicebus import ServiceBusClient

from local.cloud import Cloud
from local.testing.patience import run_patiently
from spark import package
from spark.package import ARCHIVE, JOB, REQUIRED_PINS, REQUIREMENTS, PinMissing, select_pins
from tests.spark.bookings import DOCUMENT

JOBS = ("feed", "reconcile", "replay", "archive", "backtest")
# What each does with --help, in one process, which loads PySpark once.
ALL_JOBS = """
import contextlib, runpy, sys
_, program, *jobs = sys.argv
for job in jobs:
    sys.argv = [program, job, "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_path(program, run_name="__main__")
"""


@pytest.mark.slow
def test_the_archive_runs_without_the_checkout(tmp_path: Path) -> None:
    assert package.main([f"--to={tmp_path}"]) == 0

    run = subprocess.run(
        [sys.executable, "-c", ALL_JOBS, str(tmp_path / JOB), *JOBS],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / ARCHIVE), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    usages = [line for line in run.stdout.splitlines() if line.startswith("usage: ")]
    assert [line.split()[3] for line in usages] == [f"spark.{job}" for job in JOBS]


@pytest.mark.slow
def test_the_same_sources_give_the_same_bytes_and_only_two_packages(tmp_path: Path) -> None:
    package.build_package(tmp_path)
    first = (tmp_path / ARCHIVE).read_bytes()
    package.build_package(tmp_path)

    assert (tmp_path / ARCHIVE).read_bytes() == first
    names = ZipFile(tmp_path / ARCHIVE).namelist()
    assert {name.partition("/")[0] for name in names} == {"lockstep.py", "shared", "spark"}
    assert {"spark/send/datasource.py", "shared/py.typed", "shared/wiring.py"} <= set(names)
    assert {"spark/job/log4j2.properties", "spark/check/report.html"} <= set(names)
    assert not [name for name in names if name.startswith("spark/samples/")]
    lines = (tmp_path / REQUIREMENTS).read_text().splitlines()
    assert [line.partition("==")[0] for line in lines] == list(REQUIRED_PINS)


@pytest.mark.slow
def test_a_requirement_without_a_pin_is_named() -> None:
    with pytest.raises(PinMissing, match="does not pin aiohttp, azure-identity"):
        select_pins(["azure-cosmos==1", "azure-servicebus==1", "pydantic==1"])


@pytest.mark.slow
def test_no_job_is_a_clear_line(tmp_path: Path) -> None:
    package.build_package(tmp_path)

    run = subprocess.run(
        [sys.executable, str(tmp_path / JOB), "dance"], capture_output=True, text=True, check=False
    )

    assert run.returncode == 1
    assert run.stderr.strip() == "name a job: feed, reconcile, replay, archive, backtest"


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


def submitted(
    folder: Path, job: str, cloud: Cloud, *words: str
) -> subprocess.CompletedProcess[str]:
    confs = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    command = [str(SUBMIT), "--master", "local[2,4]", *confs]
    command += ["--py-files", str(folder / ARCHIVE), str(folder / JOB), job]
    command += ["--source=rows.json", "--mapping=mapping.json", "--group=bank", *words]
    kept = ("PATH", "HOME", "JAVA_HOME")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    # No copy is kept back for later.
    environment |= {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "0", "LOCKSTEP_REGIONS": "east,west"}
    environment |= {"Cosmos": cloud.cosmos.connection_string}
    for name, each in cloud.namespaces.items():
        environment[f"ServiceBus_{name}"] = each.connection_string
    return run_patiently(command, seconds=SUBMIT_SECONDS_MAX, cwd=folder, env=environment)


def bodies(connection: str, session: str, count: int) -> list[str]:
    """The first messages of a session in the input queue of a namespace."""
    with (
        ServiceBusClient.from_connection_string(connection) as client,
        client.get_queue_receiver("lockstep", session_id=session) as receiver,
    ):
        return [str(message) for message in receiver.peek_messages(count)]


@pytest.mark.spark
@pytest.mark.proof
def test_a_file_is_fed_and_the_journal_is_read_by_nothing_but_the_package(
    tmp_path: Path, cloud: Cloud
) -> None:
    package.main([f"--to={tmp_path}"])
    (tmp_path / "rows.json").write_text("\n".join(json.dumps(row) for row in ROWS) + "\n")
    (tmp_path / "mapping.json").write_text(json.dumps(DOCUMENT))

    fed = submitted(tmp_path, "feed", cloud, "--summary=sum.json")

    assert fed.returncode == 0, fed.stderr[-3000:]
    assert json.loads((tmp_path / "sum.json").read_text())["sent"] == 6
    for space in cloud.namespaces.values():
        found = bodies(space.connection_string, "acc-1", 4)
        assert found == [f'{{"amount":{amount}}}' for amount in (10, 30, 50)]

    # spark-submit puts stderr and stdout into one.
    result = submitted(tmp_path, "reconcile", cloud, "--page=result.html", "--quiet")

    assert result.returncode == 1, result.stderr[-3000:]
    assert result.stdout.splitlines()[:2] == ["6 events expected", "6 missing"]
    assert "6 findings in 2 of 2 sessions." in (tmp_path / "result.html").read_text()
