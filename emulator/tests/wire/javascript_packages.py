"""Tests of `tests/wire/javascript`, which Node runs with pinned packages of npm."""

import os
from pathlib import Path

from local.testing.patience import run_patiently
from wire.packages import JAVASCRIPT, find_packages, find_program

SOURCES = Path(__file__).parent / "javascript"
RUN_SECONDS_MAX = 150.0


def run_javascript_tests(name: str, **environment: str) -> str:
    """Run a file of tests with Node; returns its report, fails with it unless all passed."""
    node = find_program("node")
    packages = find_packages(JAVASCRIPT)
    run = run_patiently(
        [node, "--test-reporter=spec", str(SOURCES / name)],
        seconds=RUN_SECONDS_MAX,
        env=os.environ
        | environment
        | {"NODE_PATH": str(packages / "node_modules"), "NO_COLOR": "1"},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
