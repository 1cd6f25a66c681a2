"""What Node runs with pinned packages of npm: tests of `tests/wire/javascript`, and programs."""

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


def run_javascript_program(source: str, folder: Path, **environment: str) -> str:
    """Run a module as a reader of a page would, in a folder of its own; returns what it prints."""
    node = find_program("node")
    (folder / "node_modules").symlink_to(find_packages(JAVASCRIPT) / "node_modules")
    (folder / "first.mjs").write_text(source)
    run = run_patiently(
        [node, "first.mjs"], seconds=RUN_SECONDS_MAX, cwd=folder, env=os.environ | environment
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout
