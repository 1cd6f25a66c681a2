"""`python -m local serve` from outside: data, ports, errors, clean shutdown."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusClient

from local.testing.cloud import (
    STOP_SECONDS_MAX,
    CloudProcess,
    is_open,
    reserve_ports,
    running_cloud,
)
from local.testing.patience import Patience, read_to_end, until, wait_for_end
from wire.sample_cloud import CONFIG, container, is_running, send, write_app

EMULATOR = Path(__file__).parents[2]
pytestmark = pytest.mark.wire

SOON_SECONDS = 30.0  # half of what a client stays for, which a stop must not wait for


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_app(tmp_path_factory.mktemp("app"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_with_status_zero(app: Path, number: signal.Signals) -> None:
    with running_cloud("--app", str(app)) as served:
        pids = [one["pid"] for one in served.control.request("GET", "/hosts")[1].values()]
        assert all(is_running(pid) for pid in pids)

        assert served.stop(number) == 0

        assert not any(is_running(pid) for pid in pids)


def test_no_host_outlives_a_sigkill(app: Path, tmp_path: Path) -> None:
    with running_cloud("--app", str(app), "--logs", str(tmp_path)) as served:
        pids = [one["pid"] for one in served.control.request("GET", "/hosts")[1].values()]

        os.kill(served.child.pid, signal.SIGKILL)

        until(
            lambda: not any(is_running(pid) for pid in pids),
            seconds=STOP_SECONDS_MAX,
            what="the end of the hosts",
        )


def test_without_hosts_it_starts_and_stops_soon_and_leaves_no_process_and_no_port(
    app: Path,
) -> None:
    with reserve_ports() as base, ExitStack() as running:
        options = ("--no-hosts", "--app", str(app), "--port-base", str(base))
        served = running.enter_context(running_cloud(*options))
        assert served.contract["hosts"] == {}
        ports = ports_of(served)
        assert len(ports) == 3
        assert all(is_open(port) for port in ports)
        assert children(served) == []
        patience = Patience(SOON_SECONDS)

        assert served.stop() == 0

        assert not patience.is_over()
        assert [port for port in ports if is_open(port)] == []


def test_a_client_that_stays_does_not_hold_up_the_stop(app: Path) -> None:
    with running_cloud("--no-hosts", "--app", str(app)) as served:
        bus = ServiceBusClient.from_connection_string(served.contract["servicebus"]["east"])
        with bus, bus.get_queue_receiver("work", session_id="s") as receiver:
            assert receiver.session.session_id == "s"
            patience = Patience(SOON_SECONDS)

            assert served.stop() == 0

            assert not patience.is_over()


def test_namespaces_listen_beyond_this_machine_only_on_request(app: Path) -> None:
    with running_cloud("--no-hosts", "--app", str(app)) as served:
        assert not is_open(bus_port(served), "127.0.0.2")

    # A port that nobody else is given, or somebody else may be listening at the other address.
    with reserve_ports() as base:
        options = ("--port-base", str(base), "--bus-host", "127.0.0.2")
        with running_cloud("--no-hosts", "--app", str(app), *options) as served:
            assert "sb://127.0.0.2:" in served.contract["servicebus"]["east"]
            assert not is_open(bus_port(served), "127.0.0.1")
            send(served, "from afar")
            assert (
                served.control.request("GET", "/counters")[1]["queues"]["east"]["work"]["active"]
                == 1
            )


def children(served: CloudProcess) -> list[str]:
    """The processes it has started."""
    pid = served.child.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def bus_port(served: CloudProcess) -> int:
    """Where the namespace listens."""
    endpoint = served.contract["servicebus"]["east"].partition(";")[0]
    return int(endpoint.rpartition(":")[2])


def ports_of(served: CloudProcess) -> list[int]:
    """Everywhere a cloud without hosts listens."""
    urls = (served.contract["control"], served.contract["cosmos"]["endpoint"])
    return [bus_port(served), *(urlsplit(url).port or 0 for url in urls)]


def launch(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the command alone, for what it says and how it ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "local", "serve", *arguments],
        cwd=EMULATOR,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_it_stops_with_whoever_holds_its_standard_input_open() -> None:
    command = [sys.executable, "-m", "local", "serve", "--no-hosts", "--until-stdin-ends"]
    with subprocess.Popen(
        command, cwd=EMULATOR, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["control"]

        process.stdin.close()

        assert wait_for_end(process, seconds=STOP_SECONDS_MAX) == 0


def test_data_is_kept_over_a_restart_and_belongs_to_one_process(app: Path, tmp_path: Path) -> None:
    options = ("--no-hosts", "--app", str(app), "--data", str(tmp_path / "data"))
    with running_cloud(*options) as served:
        container(served).create_item({"id": "000", "session": "s", "n": 7})
        send(served, "kept")
        refused = launch(options)
        assert b"in use" in read_to_end(refused, seconds=STOP_SECONDS_MAX)[1]
        assert refused.returncode == 2
        os.kill(served.child.pid, signal.SIGKILL)

    with running_cloud(*options) as served:
        assert container(served).read_item("000", "s")["n"] == 7
        bus = ServiceBusClient.from_connection_string(served.contract["servicebus"]["east"])
        with bus, bus.get_queue_receiver("work", session_id="s") as receiver:
            messages = receiver.receive_messages(max_message_count=1, max_wait_time=60)
            assert [str(one) for one in messages] == ["kept"]


def test_ports_follow_the_base_in_the_documented_order(app: Path) -> None:
    with (
        reserve_ports() as base,
        running_cloud("--no-hosts", "--app", str(app), "--port-base", str(base)) as served,
    ):
        contract = served.contract

        assert contract["control"] == f"http://127.0.0.1:{base}"
        assert contract["cosmos"]["endpoint"] == f"http://127.0.0.1:{base + 1}/"
        assert f"127.0.0.1:{base + 2};" in contract["servicebus"]["east"]


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4])
def test_a_taken_port_is_one_line_and_status_two(app: Path, offset: int) -> None:
    with reserve_ports() as base, socket.create_server(("127.0.0.1", base + offset)):
        refused = launch(["--app", str(app), "--port-base", str(base)])
        out, errors = read_to_end(refused, seconds=STOP_SECONDS_MAX)

    assert (refused.returncode, out) == (2, b"")
    assert len(errors.decode().splitlines()) == 1
    assert str(base + offset) in errors.decode()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--config", "/nonexistent.json"], "/nonexistent.json"),
        (["--port-base", "many"], "--port-base"),
        (["--setting", "novalue"], "NAME=VALUE"),
        (["--bus-host", "somewhere"], "'somewhere'"),
    ],
)
def test_a_bad_option_is_status_two_and_named(options: list[str], reason: str) -> None:
    refused = launch(["--no-hosts", *options])
    errors = read_to_end(refused, seconds=STOP_SECONDS_MAX)[1].decode()

    assert refused.returncode == 2
    assert reason in errors


def test_a_bad_key_in_the_config_is_one_line_that_names_it(tmp_path: Path) -> None:
    config = tmp_path / "local.config.json"
    config.write_text(json.dumps({**CONFIG, "Cosmos": {"Databse": "typo"}}))

    refused = launch(["--no-hosts", "--config", str(config)])
    errors = read_to_end(refused, seconds=STOP_SECONDS_MAX)[1].decode()

    assert refused.returncode == 2
    assert len(errors.splitlines()) == 1
    assert "Cosmos.Databse" in errors


def test_a_host_that_dies_at_start_is_an_error_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text("raise RuntimeError('the app is broken')")
    (tmp_path / "host.json").write_text('{"version": "2.0"}')
    (tmp_path / "local.config.json").write_text(json.dumps(CONFIG))

    refused = launch(["--app", str(tmp_path)])
    out, errors = read_to_end(refused, seconds=110)

    assert (refused.returncode, out) == (1, b"")
    assert "region east" in errors.decode()
    assert "the app is broken" in errors.decode()
