"""Packages that others wrote, installed outside of the work tree for the tests that run them.

Where a program or its registry cannot be had, tests skip on a laptop and fail where CI=true.
"""

import os
import shutil
import subprocess
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

INSTALL_SECONDS_MAX = 120.0


@cache
def install_packages(kind: str, pins: Path, *command: str) -> Path:
    """The folder of the packages that the file `pins` names, installed once for what it says.

    `command` installs into the folder where it runs, which holds a copy of that file. It runs
    beside the place that counts, and its folder is moved there whole: nobody sees half of it.
    """
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cached / f"lockstep-{kind}" / sha256(pins.read_bytes()).hexdigest()[:16]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        work = Path(scratch) / "packages"
        work.mkdir()
        shutil.copy(pins, work)
        try:
            run = subprocess.run(
                command,
                cwd=work,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            unavailable(f"{pins} was not installed in {INSTALL_SECONDS_MAX:.0f} seconds")
        if run.returncode != 0:
            unavailable(f"{pins} cannot be installed: {run.stderr}")
        try:
            work.rename(folder)
        except OSError:
            if not folder.exists():  # put there by another test meanwhile
                raise
    return folder


def program(name: str) -> str:
    """The path of a program that must be there."""
    path = shutil.which(name)
    if path is None:
        unavailable(f"{name} is not installed")
    return path


def unavailable(reason: str) -> NoReturn:
    """Skip, or fail where nothing may be skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
