"""Frameworks that others wrote run against the local Service Bus and Cosmos DB as they are.

Those in Python are installed beside the environment of the tests; rhea comes with the npm packages.
`python tests/wire/packages.py` installs them, and without them these tests are not run.
"""

import os
import sys
from pathlib import Path

import pytest

from local.testing.patience import run_patiently
from wire.cosmos_account import running_account
from wire.javascript_packages import run_javascript_tests
from wire.packages import PYTHON, find_packages
from wire.service_bus import running_bus

pytestmark = pytest.mark.wire
SOURCES = Path(__file__).parent / "strangers"
RUN_SECONDS_MAX = 120.0


def run_program(name: str, *arguments: str, **environment: str) -> str:
    """What a program of `tests/wire/strangers` prints when it is told where the service is."""
    packages = find_packages(PYTHON)
    run = run_patiently(
        [sys.executable, str(SOURCES / name), *arguments],
        seconds=RUN_SECONDS_MAX,
        env=os.environ | environment | {"PYTHONPATH": str(packages)},
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


def test_langgraph_keeps_finds_prunes_and_deletes_the_states_of_its_agents() -> None:
    with running_account() as account:
        said = run_program(
            "langgraph_agent.py",
            COSMOSDB_ENDPOINT=account.cosmos.endpoint,
            COSMOSDB_KEY=account.cosmos.key,
        )

    states = [[f"from {thread}", "leg 1", f"from {thread}", "leg 3"] for thread in (0, 1)]
    assert said.splitlines() == [f"states {states}", "history [4, 3, 2, 2, 1, 0]", "left [0, 1]"]
