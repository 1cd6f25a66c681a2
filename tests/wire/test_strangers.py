"""Frameworks that others wrote run against the local Service Bus as they are.

Celery and FastStream are installed beside the environment of the tests, once for each set of pins;
rhea comes with the npm packages. Where the index cannot be had, tests skip on a laptop and fail
where CI=true.
"""

import os
import subprocess
import sys
import tempfile
from functools import cache
from hashlib import sha256
from pathlib import Path

import pytest

from tests.wire.javascript_packages import run_javascript_tests, unavailable
from tests.wire.service_bus import running_bus

pytestmark = [pytest.mark.wire, pytest.mark.timeout(300)]  # the packages may be installed first
SOURCES = Path(__file__).parent / "strangers"
INSTALL_SECONDS_MAX = 120.0
RUN_SECONDS_MAX = 120.0


@cache
def installed_frameworks() -> Path:
    """The folder of the pinned packages."""
    pins = SOURCES / "requirements.txt"
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cached / "lockstep-strangers" / sha256(pins.read_bytes()).hexdigest()[:16]
    if folder.exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        work = Path(scratch) / "packages"
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(work)]
        try:
            run = subprocess.run(
                [*command, "-r", str(pins)],
                capture_output=True,
                text=True,
                timeout=INSTALL_SECONDS_MAX,
                check=False,
            )
        except subprocess.TimeoutExpired:
            unavailable(f"pip install took more than {INSTALL_SECONDS_MAX:.0f} seconds")
        if run.returncode != 0:
            unavailable(f"pip install failed: {run.stderr}")
        try:
            work.rename(folder)
        except OSError:
            if not folder.exists():  # put there by another test meanwhile
                raise
    return folder


def run_program(name: str, address: str) -> str:
    """What a program of `tests/wire/strangers` prints when it is told where the namespace is."""
    run = subprocess.run(
        [sys.executable, str(SOURCES / name), address],
        env=os.environ | {"PYTHONPATH": str(installed_frameworks())},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_celery_makes_its_queue_runs_tasks_and_tries_one_again() -> None:
    with running_bus() as bus:
        said = run_program("celery_worker.py", f"{bus.namespace.host}:{bus.namespace.port}")

        assert "ran [(0, 0), (1, 0), (2, 0), (3, 1), (4, 0)]" in said
        assert set(bus.namespace.depth("celery").values()) == {0}


def test_faststream_handles_a_queue_and_a_subscription() -> None:
    with running_bus() as bus:
        said = run_program("faststream_app.py", bus.namespace.connection_string)

        both = [(place, number) for place in ("news", "parcels") for number in range(3)]
        assert f"got {both}" in said
        assert set(bus.namespace.depth("parcels").values()) == {0}


def test_rhea_sends_receives_and_settles_with_a_password() -> None:
    with running_bus() as bus:
        address = f"{bus.namespace.host}:{bus.namespace.port}"
        report = run_javascript_tests("rhea.test.cjs", SERVICE_BUS=address)

        assert "fail 0" in report
        assert bus.count("complete") == 3
