"""Machines that share a folder for tables alone: a feed is killed, resumed and reconciled."""

import json
import shutil
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.cloud import app_settings
from local.testing.patience import until, wait_for_end
from spark import package
from tests.e2e.stack import Stack, running_stack
from tests.spark.private_disks import HEAD, LAKE, PYTHON, Machine, can_have_machines, cluster
from tests.spark.statuses import MAPPING, delayed, effects, expected, table, write

pytestmark = [
    pytest.mark.spark,
    pytest.mark.e2e,
    pytest.mark.proof,
    pytest.mark.skipif(not can_have_machines(), reason="not run: no mount namespaces (root only)"),
]

AIRCRAFT = 12
YESTERDAY = table(AIRCRAFT, range(6))
TODAY = delayed(table(AIRCRAFT, range(8)), places=(0, 30, 71))
DELAY = {"LOCKSTEP_SECONDARY_DELAY_SECONDS": "2"}
JOB_SECONDS_MAX = 400.0
# A driver that is killed where it would call this; it is the job that the package has otherwise.
DOOMED_JOB, POINTS = "doomed_job.py", ("EventWriter.send", "Manifest.mark_sent")
DOOMED = """\
import os, signal, sys
from spark import feed
from spark.feeding.manifest import Manifest
from spark.send.datasource import EventWriter

owner, method = sys.argv.pop(1).split(".")
setattr(globals()[owner], method, lambda *_, **__: os.killpg(0, signal.SIGKILL))
sys.exit(feed.main(sys.argv[1:]))
"""
CONFS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": HEAD,
    "spark.driver.bindAddress": HEAD,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "500m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    with running_stack(tmp_path / "cloud", **DELAY) as stack:
        yield stack


def test_killed_and_run_again_on_machines_with_disks_of_their_own_the_journal_has_the_source(
    stack: Stack, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    package.build_package(lake)
    (lake / DOOMED_JOB).write_text(DOOMED)
    (lake / "mapping.json").write_text(json.dumps(MAPPING))
    with socket.create_server((HEAD, 0)) as free:
        port = free.getsockname()[1]
    settings = app_settings(stack.cloud) | DELAY

    with cluster(lake, tmp_path, port) as master:

        def submit(job: str, *words: str) -> int:
            """Run a job on the cluster, from a machine that is none of the workers."""
            confs = [
                word for name, value in CONFS.items() for word in ("--conf", f"{name}={value}")
            ]
            command = [str(PYTHON / "bin/spark-submit"), "--master", master, *confs]
            command += ["--py-files", str(LAKE / package.ARCHIVE), str(LAKE / job), *words]
            given = [f"{name}={value}" for name, value in settings.items()]
            driver = Machine(lake, HEAD).start(["env", *given, *command], tmp_path / "driver.log")
            return wait_for_end(driver, seconds=JOB_SECONDS_MAX)

        source, manifest = f"--source=file://{LAKE}/in.json", f"--manifest=cosmos+file://{LAKE}/fed"
        inputs = [source, f"--mapping={LAKE}/mapping.json", "--group=flights", manifest]
        feed = [*inputs, f"--rejects=file://{LAKE}/rejects", "--lanes=2", "--batch=20"]
        write(lake / "in.json", YESTERDAY)
        for point in POINTS:
            assert submit(DOOMED_JOB, point, *feed) == -signal.SIGKILL, read(tmp_path)
            shutil.rmtree(lake / "rejects")
        write(lake / "in.json", TODAY)
        status = submit(package.JOB, "feed", *feed, f"--summary={LAKE}/sum.json")
        assert status == 0, read(tmp_path)

        told = json.loads((lake / "sum.json").read_text())
        # The second one sent what the first had bound, and its tasks have recorded that.
        assert told["resumed"] == 0
        assert (told["standings"]["changed"], told["standings"]["new"]) == (3, 2 * AIRCRAFT)
        until(lambda: stack.left_in_queues() == 0, seconds=90, what="draining")
        assert effects(stack.entries()) == expected(YESTERDAY, TODAY)
        assert submit(package.JOB, "reconcile", *inputs) == 0, read(tmp_path)


def read(folder: Path) -> str:
    return (folder / "driver.log").read_text()[-3000:]
