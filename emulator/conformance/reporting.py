"""A plugin of pytest that leaves out what is not applicable and writes down how each test ended."""

import json
import os
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from conformance.catalogue import SUITES
from conformance.running import ONLY, PART, REPORT, SUITE


@pytest.hookimpl(trylast=True)  # after pytest's own choice by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    suite = SUITES[os.environ[SUITE]]
    part, parts = map(int, os.environ[PART].split())
    patterns = os.environ[ONLY].splitlines()
    mine = [
        item for item in items if any(fnmatchcase(item.nodeid, pattern) for pattern in patterns)
    ][part::parts]
    items.clear()
    for item in mine:
        reason = suite.find_reason(item.nodeid, {mark.name for mark in item.iter_markers()})
        if reason is None:
            items.append(item)
        else:
            write_outcome(item.nodeid, "deselected", reason)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome != "passed":
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        text = getattr(report, "wasxfail", text)  # a failure that the suite itself expects
        write_outcome(report.nodeid, report.outcome, text)


def write_outcome(test: str, ending: str, text: str) -> None:
    with Path(os.environ[REPORT]).open("a") as file:
        file.write(json.dumps([test, ending, text]) + "\n")
