"""A worker apart from its host: it dies alone, and takes with it what it was doing."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from local.hosts import RECYCLED
from local.testing.answers import KEY
from local.testing.patience import eventually
from wire.functions_host_process import SAMPLE_APP, running_host
from wire.test_functions_host_service_bus import World, world
from wire.test_functions_host_timeouts import HASTY, begun, restarts

__all__ = ["world"]
pytestmark = pytest.mark.wire


def test_a_killed_worker_is_followed_by_another_and_its_message_comes_again(
    world: World, tmp_path: Path
) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, SAMPLE_APP, "host", ServiceBus=connection) as host:
        killed = host.worker()
        held = {"until": str(tmp_path / "never"), "once": True}
        world.send([("slow", "slow-0", held)])
        eventually(lambda: begun(host, "slow") == [("slow-0", 1)])

        os.kill(killed, signal.SIGKILL)

        eventually(lambda: begun(host, "slow") == [("slow-0", 1), ("slow-0", 2)])
        assert host.worker() != killed
        assert host.end() == 0


@pytest.mark.parametrize("how", ["exit", pytest.param("abort", marks=pytest.mark.proof)])
def test_a_function_that_exits_ends_its_worker_and_not_its_host(tmp_path: Path, how: str) -> None:
    with running_host(tmp_path, SAMPLE_APP, "host") as host:
        assert host.request(f"/api/end/{how}").status == 500

        eventually(lambda: restarts(host) == 1)
        assert host.request("/api/slow/0", headers=KEY).status == 200
        assert host.process.poll() is None


@pytest.mark.parametrize("how", ["panic", "cancel"])
def test_what_is_no_exception_has_no_answer_until_its_time_is_up(tmp_path: Path, how: str) -> None:
    with running_host(tmp_path, SAMPLE_APP, "host", **HASTY) as host:
        assert host.request(f"/api/end/{how}").status == 500

        assert any("end ran longer than 2.0 s" in line["message"] for line in host.log())


def test_when_workers_die_again_and_again_the_host_ends_to_be_started_again(tmp_path: Path) -> None:
    with running_host(tmp_path, SAMPLE_APP, "host") as host, ThreadPoolExecutor() as senders:
        os.kill(host.worker(), signal.SIGKILL)
        eventually(lambda: restarts(host) == 1)
        # A worker that is not the first takes its time to be given up.
        running = [senders.submit(host.request, "/api/slow/60", headers=KEY) for _ in range(3)]
        os.kill(host.worker(), signal.SIGKILL)
        assert [one.result().status for one in running] == [500, 500, 500]
        # What comes before the next one runs waits for it.
        assert host.request("/api/slow/0", headers=KEY).status == 200
        os.kill(host.worker(), signal.SIGKILL)

        assert host.process.wait(60) == RECYCLED
        said = [line["message"] for line in host.log()]
        assert any("Exceeded language worker restart retry count" in message for message in said)


def test_a_worker_ends_with_its_host_however_busy_it_is(tmp_path: Path) -> None:
    with running_host(tmp_path, SAMPLE_APP, "host") as host, ThreadPoolExecutor() as senders:
        worker = host.worker()
        blocked = senders.submit(host.request, "/api/blocked")

        host.end(signal.SIGKILL)

        with pytest.raises(OSError):  # noqa: PT011 - the connection ends with the process
            blocked.result()
        eventually(lambda: not Path(f"/proc/{worker}").exists())
