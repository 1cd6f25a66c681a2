"""Run tests in a process of its own, on the engine with or without a mutant in it.

The processes are forked from one that has pytest and the engine loaded already: that is two thirds
of what a process of its own takes for tests that fail in a third of a second.
"""

import multiprocessing
import os
import sys
import traceback
from contextlib import nullcontext
from pathlib import Path

import pytest

from local.testing.patience import Patience
from tests.mutants.loading import applied
from tests.mutants.mutant import ROOT, Mutant

LOADED = [
    "pytest_timeout",
    "proof.simulation.run",
    "tests.mutants.run_tests",
    "tests.world",
    "xdist.plugin",
]
SECONDS_MAX, LOOK_SECONDS = 240.0, 1.0
# A test that a mutant keeps from ending has noticed it.
TEST_SECONDS_MAX = 60


def run_tests(tests: str, mutant: Mutant | None, output: Path) -> int | None:
    """Pytest's exit status, until the first failure; None if four minutes of fair time are over.

    `output` gets what is printed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    process = context.Process(target=run_pytest, args=(tests, mutant, output))
    process.start()
    patience = Patience(SECONDS_MAX)
    while process.is_alive() and not patience.is_over():
        process.join(LOOK_SECONDS)
    status = process.exitcode
    if status is None:
        process.kill()
        process.join()
    return status


def run_pytest(tests: str, mutant: Mutant | None, output: Path) -> None:
    """Run the tests, and end this process with their status, or that of a broken run."""
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    with output.open("wb") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    status: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        with applied(mutant) if mutant else nullcontext():
            options = ["-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS_MAX}"]
            status = pytest.main([tests, *options])
    except Exception:
        traceback.print_exc()
    sys.exit(status)
