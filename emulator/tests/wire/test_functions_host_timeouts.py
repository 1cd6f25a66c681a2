"""A function past `functionTimeout` ends the worker's process, with all that it was doing."""

from pathlib import Path

import pytest

from local.testing.answers import KEY
from local.testing.patience import eventually
from wire.functions_host_process import SAMPLE_APP, HostProcess, running_host
from wire.test_functions_host_durable import APP, running_backend, started
from wire.test_functions_host_service_bus import World, world

__all__ = ["world"]
pytestmark = pytest.mark.wire

HASTY = {"AzureFunctionsJobHost__functionTimeout": "00:00:02"}


def restarts(host: HostProcess) -> int:
    return sum("a new worker runs functions" in line["message"] for line in host.log())


def begun(host: HostProcess, session: str) -> list[tuple[str, int]]:
    """The messages of a session that were begun, each with its delivery count."""
    words = [line["message"].split() for line in host.log() if line["function"] == "receive"]
    return [(w[1], int(w[-1])) for w in words if w[0] == "begins" and w[1].startswith(session)]


def test_when_a_function_takes_too_long_what_runs_in_other_sessions_fails_with_it(
    world: World, tmp_path: Path
) -> None:
    connection = world.namespace.connection_string
    # Many, so that some of them run when the worker ends, however long the pauses between two
    # calls of a session are on a busy machine.
    sent = {f"quick{of}": [f"quick{of}-{n}" for n in range(4)] for of in range(7)}
    with running_host(tmp_path, SAMPLE_APP, "host", ServiceBus=connection, **HASTY) as host:
        world.send([("slow", "slow-0", {"pause": 60, "once": True})])
        for session, names in sent.items():
            world.send((session, name, {"pause": 1.0}) for name in names)

        eventually(lambda: restarts(host) >= 1)
        eventually(
            lambda: all(names[-1] in dict(begun(host, of)) for of, names in sent.items()),
            seconds=120,
        )

        runs = {session: begun(host, session) for session in sent}
        assert any(count > 1 for begins in runs.values() for _, count in begins)
        assert ("slow-0", 2) in begun(host, "slow")
        # Each is run once by each worker that did not end in it, and nothing is skipped.
        for session, begins in runs.items():
            assert list(dict.fromkeys(name for name, _ in begins)) == sent[session]
            counts = {name: [n for other, n in begins if other == name] for name in sent[session]}
            assert all(counted == sorted(set(counted)) for counted in counts.values())
        assert host.process.poll() is None


def test_a_thread_that_never_ends_is_gone_with_its_process(tmp_path: Path) -> None:
    with running_host(tmp_path, SAMPLE_APP, "host", **HASTY) as host:
        assert host.request("/api/slow/0", headers=KEY).status == 200

        assert host.request("/api/stuck").status == 500

        eventually(lambda: restarts(host) == 1)
        eventually(host.is_there)
        assert any("stuck ran longer than 2.0 s" in line["message"] for line in host.log())
        assert host.request("/api/slow/0", headers=KEY).status == 200
        assert host.end() == 0
        assert host.process.stdout is not None
        assert host.process.stdout.read() == ""


def test_a_function_that_blocks_the_event_loop_is_ended_like_any_other(tmp_path: Path) -> None:
    with running_host(tmp_path, SAMPLE_APP, "host", **HASTY) as host:
        assert host.request("/api/blocked").status == 500

        eventually(lambda: restarts(host) == 1)
        assert host.request("/api/slow/0", headers=KEY).status == 200
        assert host.end() == 0


def test_an_activity_that_takes_too_long_is_run_again_by_the_next_worker(tmp_path: Path) -> None:
    with (
        running_backend() as backend,
        running_host(tmp_path, APP, "host", LOCAL_DURABLE_ADDRESS=backend.address, **HASTY) as host,
    ):
        started(host, "patient", 60)

        def runs() -> int:
            return sum("holding in" in line["message"] for line in host.log())

        eventually(lambda: runs() >= 2)
