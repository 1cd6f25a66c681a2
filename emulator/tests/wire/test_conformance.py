"""`python -m conformance`: how it judges tests, and the short form of the real ones."""

import json
import os
import signal
import subprocess
import sys
import tarfile
from fnmatch import fnmatchcase
from pathlib import Path

import psutil
import pytest

from conformance.catalogue import SUITES
from conformance.fetching import locate_archive
from local.testing.patience import eventually, run_patiently, wait_for_end

EMULATOR = Path(__file__).parents[2]
pytestmark = pytest.mark.wire

# What a source distribution may hold: a test for each way to end, and some for each limit.
TESTS = """
import os
import time
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from devtools_testutils import AzureMgmtRecordedTestCase, get_credential
from servicebus_preparer import (
    SERVICEBUS_ENDPOINT_SUFFIX,
    CachedServiceBusNamespacePreparer,
    ServiceBusQueuePreparer,
)
from utilities import ArgPasser


@pytest.mark.liveTest
class TestQueue(AzureMgmtRecordedTestCase):
    @CachedServiceBusNamespacePreparer(name_prefix="some")
    @ServiceBusQueuePreparer(name_prefix="some", lock_duration="PT5S")
    @pytest.mark.parametrize("uamqp_transport", [False], ids=["pyamqp"])
    @ArgPasser()
    def test_passes(
        self,
        uamqp_transport,
        *,
        servicebus_namespace,
        servicebus_namespace_connection_string,
        servicebus_queue,
        **_,
    ):
        address = f"{servicebus_namespace.name}{SERVICEBUS_ENDPOINT_SUFFIX}"
        with ServiceBusClient(address, get_credential()) as client:
            with client.get_queue_sender(servicebus_queue.name) as sender:
                sender.send_messages(ServiceBusMessage("here"))
        with ServiceBusClient.from_connection_string(
            servicebus_namespace_connection_string
        ) as client:
            with client.get_queue_receiver(servicebus_queue.name) as receiver:
                assert [str(one) for one in receiver.receive_messages()] == ["here"]

    def test_fails(self):
        assert "this" == "that"

    @CachedServiceBusNamespacePreparer(name_prefix="some")
    @ServiceBusQueuePreparer(name_prefix="some", enable_partitioning=True)
    def test_is_refused(self, **_):
        raise AssertionError("never called")

    @pytest.mark.skip("for a reason of its own")
    def test_is_skipped(self):
        raise AssertionError("never called")

    def test_sb_client_readonly_credentials(self):
        raise AssertionError("never called")


def test_of_the_client_alone():
    raise AssertionError("never called")
"""
UTILITIES = """
class ArgPasser:
    def __call__(self, test):
        def run(case, uamqp_transport, **arguments):
            test(case, uamqp_transport=uamqp_transport, **arguments)
        return run
"""
SILENT = """
import pytest
import time

@pytest.mark.liveTest
def test_never_ends():
    time.sleep(600)
"""


def run_conformance(*words: str, home: Path | None = None) -> subprocess.CompletedProcess[str]:
    caches = {} if home is None else {"XDG_CACHE_HOME": str(home), "TMPDIR": str(home)}
    return run_patiently(
        [sys.executable, "-m", "conformance", *words],
        seconds=240,
        cwd=EMULATOR,
        env=os.environ | caches,
    )


def keep_distribution(home: Path, **files: str) -> None:
    """Put a distribution where the one from the package index would be kept."""
    suite = SUITES["servicebus"]
    archive = home / "tworegions-conformance" / f"azure_servicebus-{suite.version}.tar.gz"
    tests = home / "source" / "azure_servicebus" / "tests"
    tests.mkdir(parents=True)
    archive.parent.mkdir()
    for name, text in files.items():
        (tests / f"{name}.py").write_text(text)
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(home / "source" / "azure_servicebus", "azure_servicebus")


@pytest.mark.proof
def test_each_way_to_end_is_told_from_the_others(tmp_path: Path) -> None:
    keep_distribution(tmp_path, test_queues=TESTS, utilities=UTILITIES)

    ended = run_conformance("servicebus", home=tmp_path)

    assert ended.returncode == 1, ended.stdout + ended.stderr
    summary = ended.stdout[ended.stdout.index("azure-servicebus") :].splitlines()
    lines = [line.strip() for line in summary[1:]]
    assert lines[:3] == [
        "refused:",
        "1 queue 'some-servicebus_queue': not honoured: EnablePartitioning",
        "not applicable:",
    ]
    assert set(lines[3:6]) == {
        "1 the suite skips it: Skipped: for a reason of its own",
        "1 needs a key with fewer rights; a local namespace has one key, with all",
        "1 bears no mark of a live test: it tries the SDK alone",
    }
    assert lines[6:9] == [
        "failed:",
        "test_queues.py::TestQueue::test_fails",
        "1 passed, 1 refused, 3 not applicable, 1 failed",
    ]
    last = json.loads((EMULATOR / "conformance/whole_runs.json").read_text("utf-8"))["servicebus"]
    counts = f"{last['passed']} passed, {last['refused']} refused"
    assert lines[9].startswith(f"the last whole run, of {last['version']}: {counts}")
    assert "assert 'this' == 'that'" in ended.stdout


def test_what_does_not_end_in_time_has_failed_and_leaves_nothing(tmp_path: Path) -> None:
    keep_distribution(tmp_path, test_silent=SILENT)
    before = {one.name for one in tmp_path.iterdir()}

    ended = run_conformance("servicebus", "--minutes", "0.1", home=tmp_path)

    assert ended.returncode == 1
    assert "did not end in the time of the whole run" in ended.stdout
    assert {one.name for one in tmp_path.iterdir()} == before


def test_when_a_signal_ends_the_run_nothing_of_it_stays(tmp_path: Path) -> None:
    keep_distribution(tmp_path, test_silent=SILENT)
    before = {one.name for one in tmp_path.iterdir()}
    run = psutil.Popen(
        [sys.executable, "-m", "conformance", "servicebus"],
        cwd=EMULATOR,
        env=os.environ | {"XDG_CACHE_HOME": str(tmp_path), "TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
    )
    (child,) = eventually(run.children)

    run.terminate()

    assert wait_for_end(run, seconds=60) == 128 + signal.SIGTERM
    assert not child.is_running()
    assert {one.name for one in tmp_path.iterdir()} == before


def test_a_file_that_cannot_be_imported_has_failed(tmp_path: Path) -> None:
    keep_distribution(tmp_path, test_broken="import a_package_that_nobody_has")

    ended = run_conformance("servicebus", home=tmp_path)

    assert ended.returncode == 1
    assert "No module named 'a_package_that_nobody_has'" in ended.stdout


def test_every_reason_speaks_of_tests_and_each_pattern_of_a_file_or_of_any() -> None:
    for suite in SUITES.values():
        for one in suite.not_applicable:
            assert one.reason
            assert one.tests or one.marks
            assert not any(fnmatchcase("", pattern) for pattern in one.tests)


@pytest.mark.parametrize("name", SUITES)
def test_the_short_form_of_the_real_tests_passes(name: str) -> None:
    archive = locate_archive(SUITES[name])
    if not archive.exists():
        pytest.skip(f"not run: {archive} is not there: `python -m conformance` fetches it")

    ended = run_conformance(name, "--short")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " 0 passed" not in ended.stdout
