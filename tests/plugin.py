"""Which tests are chosen, in which order they run, in which process, and how failures are told."""

import errno
import gc
import json
import os
import subprocess
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from local.testing.children import ChildFailed
from local.testing.patience import PatienceExhausted
from tests.sizes import FIRST_SEED, IS_PROOF, choose_first_seed

ROOT = Path(__file__).parents[1]
# The dearest first: a run that ends with one long test ends late. What is not here comes last.
ORDER = ("spark", "e2e", "wire", "mutants", "crash_points", "simulation", "infra", "scenarios")
# Whoever starts processes may fail for want of processor time, of a port, or of a start.
STARTS_PROCESSES = ("wire", "spark", "e2e")
WANTING = (PatienceExhausted, ChildFailed, subprocess.TimeoutExpired)
WANTED = "wanted"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--failures",
        type=Path,
        metavar="FILE",
        help="write which tests failed into FILE, and which of them only wanted time or a port",
    )


def pytest_configure(config: pytest.Config) -> None:
    choose_first_seed()
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailureReporter(config))


def pytest_report_header() -> list[str]:
    size = "all tests" if IS_PROOF else "a sample of each kind of test; TESTS_PROOF=1 runs all"
    return [f"{size}; {FIRST_SEED}={os.environ[FIRST_SEED]}"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: what comes, thousands of tests and all modules, stays.

    Nothing is frozen, because the mutants look for functions among what the collector knows.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not IS_PROOF:
        named = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
        sample: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            is_left_out = item.get_closest_marker("proof") and item.path not in named
            (others if is_left_out else sample).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = sample
    items.sort(key=lambda item: find_place(item.nodeid))


def find_place(nodeid: str) -> int:
    folder = nodeid.removeprefix("emulator/").removeprefix("tests/").partition("/")[0]
    return ORDER.index(folder) if folder in ORDER else len(ORDER)


class OneSpark(LoadFileScheduling):  # type: ignore[misc]
    """Files are spread over the processes, but one has all of Spark.

    A second session would take twenty seconds to start, and as many to get warm.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark" if file.startswith("tests/spark/") else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneSpark:
    return OneSpark(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and call.excinfo and any(map(item.get_closest_marker, STARTS_PROCESSES)):
        error = call.excinfo.value
        is_wanting = isinstance(error, WANTING) or (
            isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        )
        report.user_properties.append((WANTED, is_wanting))
    return report


class FailureReporter:
    """Tells of a failure when it happens, and of all of them in a file at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        # Whether all that went wrong in a failed test was that it wanted time or a port.
        self.failed: dict[str, bool] = {}
        self.skipped: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[report.nodeid] += 1
        if not report.failed:
            return
        is_wanting = dict(report.user_properties).get(WANTED) is True
        self.failed[report.nodeid] = is_wanting and self.failed.get(report.nodeid, True)
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is not None:
            terminal.ensure_newline()
            terminal.write_line(f"FAILED {report.nodeid} ({report.when})", red=True)
            terminal.write_line(report.longreprtext)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.skipped:
            terminalreporter.write_line(f"not run: {len(self.skipped)}")

    def pytest_sessionfinish(self) -> None:
        path: Path | None = self.config.getoption("failures")
        if path is not None:
            path.write_text(json.dumps(self.failed), encoding="utf-8")
