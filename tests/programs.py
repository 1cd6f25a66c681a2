"""Programs that tests call, where they are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def find_program(name: str) -> str:
    """Return the path of a program that is installed; otherwise the test is not run, in CI too."""
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"not run: {name} is not installed: `.ci/setup tests` does it where it may")
    return path


def run_python(program: str, **environment: str) -> str:
    """Return what a program prints that another Python runs, with these variables, too."""
    command, root = [sys.executable, "-c", program], Path(__file__).parents[1]
    env = os.environ | environment
    run = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=True)
    return run.stdout
