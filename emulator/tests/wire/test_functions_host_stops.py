"""How a host ends, and how it serves one group of functions alone, as the real one does."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from local.functions_host.host import GRACE_SECONDS
from local.testing.answers import KEY
from local.testing.patience import eventually
from wire.functions_host_process import SAMPLE_APP, HostProcess, running_host
from wire.test_functions_host_durable import APP, ended, running_backend, started, status
from wire.test_functions_host_service_bus import World, world
from wire.test_functions_host_timeouts import begun

__all__ = ["world"]
pytestmark = pytest.mark.wire


PATIENT = {"AzureFunctionsJobHost__functionTimeout": "00:05:00"}


def has_begun(host: HostProcess, message: str) -> Callable[[], bool]:
    return lambda: (message, 1) in begun(host, message.partition("-")[0])


def test_a_host_that_is_told_to_end_takes_messages_for_as_long_as_something_runs(
    world: World, tmp_path: Path
) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, SAMPLE_APP, "host", ServiceBus=connection, **PATIENT) as host:
        world.send([("slow", "slow-0", {"until": str(tmp_path / "released")})])
        eventually(has_begun(host, "slow-0"))

        host.process.send_signal(signal.SIGTERM)
        world.send([("quick", "quick-0", {})])

        eventually(has_begun(host, "quick-0"))
        (tmp_path / "released").touch()
        assert host.process.wait(60) == 0
    assert world.is_drained()


def test_what_runs_after_that_is_cut_off_and_comes_again(world: World, tmp_path: Path) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, SAMPLE_APP, "host", ServiceBus=connection, **PATIENT) as host:
        world.send([("slow", "slow-0", {"pause": 4 * GRACE_SECONDS, "once": True})])
        eventually(has_begun(host, "slow-0"))
        assert host.end() == 0
        said = [line["message"] for line in host.log()]
        assert "still running: cut off" in said

    with running_host(tmp_path, SAMPLE_APP, "next", ServiceBus=connection, **PATIENT) as host:
        eventually(lambda: "slow-0" in dict(begun(host, "slow")))


def test_after_a_drain_nothing_new_is_taken_and_nothing_is_cut_off(
    world: World, tmp_path: Path
) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, SAMPLE_APP, "host", ServiceBus=connection, **PATIENT) as host:

        def drain_state() -> str:
            answer = host.request("/admin/host/drain/status", headers=KEY)
            return str(json.loads(answer.body)["state"])

        assert drain_state() == "Disabled"
        world.send([("slow", "slow-0", {"until": str(tmp_path / "released")})])
        eventually(has_begun(host, "slow-0"))

        assert host.request("/admin/host/drain", "POST").status == 401
        assert host.request("/admin/host/drain", "POST", headers=KEY).status == 202
        assert drain_state() == "InProgress"
        world.send([("quick", "quick-0", {})])
        (tmp_path / "released").touch()

        eventually(lambda: drain_state() == "Completed")
        assert host.end() == 0
        assert begun(host, "quick") == []
    assert world.namespace.depth("sample")["active"] == 1


def test_a_host_for_one_group_leaves_the_others_alone(world: World, tmp_path: Path) -> None:
    connection = world.namespace.connection_string
    world.send([("quick", "quick-0", {})])
    names = {"ServiceBus": connection, "SAMPLE_SCHEDULE": "*/1 * * * * *"}
    with running_host(
        tmp_path, SAMPLE_APP, "timer", **names, FUNCTIONS_TARGET_GROUP="function:tick"
    ) as host:
        eventually(lambda: len(host.seen("timers")) > 1)
        assert host.seen("messages") == []
    with running_host(
        tmp_path, SAMPLE_APP, "queue", **names, FUNCTIONS_TARGET_GROUP="FUNCTION:receive"
    ) as host:
        eventually(lambda: len(host.seen("messages")) == 1)
        assert host.seen("timers") == []
        # The platform asks hosts of the http group only; a host answers whoever asks it.
        assert host.request("/api/slow/0", headers=KEY).status == 200


def test_an_orchestration_waits_for_a_host_of_the_durable_group(tmp_path: Path) -> None:
    with running_backend() as backend:
        address = {"LOCAL_DURABLE_ADDRESS": backend.address}
        with running_host(tmp_path, APP, "http", **address, FUNCTIONS_TARGET_GROUP="http") as http:
            instance = started(http, "chain", "x")["id"]
            # A turn would be taken at once where anybody took work.
            assert status(http, instance)["runtimeStatus"] == "Pending"
            with running_host(
                tmp_path, APP, "durable", **address, FUNCTIONS_TARGET_GROUP="durable"
            ) as durable:
                assert ended(durable, instance)[0] == "Completed"
                os.kill(durable.worker(), 0)
