"""A plugin of pytest that leaves out what is not applicable and writes down how each test ended."""

import json
import os
from pathlib import Path

import pytest

from tests.conformance.catalogue import SUITES
from tests.conformance.suite import REPORT, SUITE


@pytest.hookimpl(trylast=True)  # after pytest's own choice by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    suite = SUITES[os.environ[SUITE]]
    reasons = {
        item.nodeid: suite.find_reason(item.nodeid, {mark.name for mark in item.iter_markers()})
        for item in items
    }
    for test, reason in reasons.items():
        if reason is not None:
            write_outcome(test, "deselected", reason)
    items[:] = [item for item in items if reasons[item.nodeid] is None]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        write_outcome(report.nodeid, report.outcome, text)


def write_outcome(test: str, ending: str, text: str) -> None:
    with Path(os.environ[REPORT]).open("a") as file:
        file.write(json.dumps([test, ending, text]) + "\n")
