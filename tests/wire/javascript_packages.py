"""Node and the npm packages of `tests/wire/javascript`, installed outside of the work tree.

Where Node, npm or the registry cannot be had, tests skip on a laptop and fail where CI=true.
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

SOURCES = Path(__file__).parent / "javascript"
INSTALL_SECONDS_MAX = 120.0
RUN_SECONDS_MAX = 150.0


def run_javascript_tests(name: str, **environment: str) -> str:
    """Run a file of tests with Node; returns its report, fails with it unless all passed."""
    packages = installed_packages()
    node = program("node")
    run = subprocess.run(
        [node, "--test-reporter=spec", str(SOURCES / name)],
        env=os.environ | environment | {"NODE_PATH": str(packages), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


@cache
def installed_packages() -> Path:
    """The `node_modules` of the pinned packages, installed once for each set of pins."""
    pins = (SOURCES / "package.json").read_bytes()
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cached / "lockstep-javascript" / sha256(pins).hexdigest()[:16]
    if not folder.exists():
        install(pins, folder)
    return folder / "node_modules"


def install(pins: bytes, folder: Path) -> None:
    """Install beside the folder and move it there whole, so that nobody sees half of it."""
    npm = program("npm")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        work = Path(scratch) / "packages"
        work.mkdir()
        (work / "package.json").write_bytes(pins)
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        try:
            run = subprocess.run(
                [npm, "install", *options],
                cwd=work,
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            unavailable(f"npm install took more than {INSTALL_SECONDS_MAX:.0f} seconds")
        if run.returncode != 0:
            unavailable(f"npm install failed: {run.stderr}")
        try:
            work.rename(folder)
        except OSError:
            if not folder.exists():  # put there by another test meanwhile
                raise


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
