"""`python -m local serve` from outside: the line, control, hosts, data, errors, clean shutdown."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.cosmos import ContainerProxy, CosmosClient
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.wire.serving import ROOT, STOP_SECONDS_MAX, Served, http, launch, serving

pytestmark = pytest.mark.wire

APP = """
import os
import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)


@app.route(route="where")
def where(req: func.HttpRequest) -> func.HttpResponse:
    names = ("REGION", "EXTRA", "BUS", "STORE", "INHERITED")
    return func.HttpResponse("|".join(os.environ.get(name, "-") for name in names))
"""
CONFIG: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {"Name": "east", "Queues": [{"Name": "work", "Properties": {"RequiresSession": True}}]}
        ]
    },
    "Cosmos": {
        "Database": "lockstep",
        "Containers": [{"Name": "journal", "PartitionKey": "/session"}],
    },
    "Hosts": {
        "Regions": ["east", "west"],
        "Values": {
            "REGION": "{region}",
            "EXTRA": "from the file",
            "BUS": "{servicebus.east}",
            "STORE": "{cosmos}",
            "INHERITED": "from the file",
        },
    },
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Functions app of one HTTP function, with a config beside it."""
    directory = tmp_path_factory.mktemp("app")
    (directory / "function_app.py").write_text(APP)
    (directory / "host.json").write_text('{"version": "2.0"}')
    (directory / "local.config.json").write_text(json.dumps(CONFIG))
    return directory


@pytest.fixture(scope="module")
def cloud(app: Path) -> Iterator[Served]:
    os.environ["INHERITED"] = "from the caller"
    with serving("--app", str(app), "--setting", "EXTRA=from an option") as served:
        yield served
    del os.environ["INHERITED"]


def container(served: Served) -> ContainerProxy:
    cosmos = served.contract["cosmos"]
    client = CosmosClient(cosmos["endpoint"], cosmos["key"])
    return client.get_database_client(cosmos["database"]).get_container_client("journal")


def send(served: Served, body: str) -> None:
    """Put one message into the work queue."""
    bus = ServiceBusClient.from_connection_string(served.contract["servicebus"]["east"])
    with bus, bus.get_queue_sender("work") as sender:
        sender.send_messages(ServiceBusMessage(body, session_id="s"))


def where(served: Served, region: str) -> str:
    """What the app of a region says about its settings."""
    status, text = http("GET", served.contract["hosts"][region] + "/api/where")
    assert status == 200
    return str(text)


def running(pid: int) -> bool:
    """Whether a process exists."""
    return Path(f"/proc/{pid}").exists()


def test_the_line_tells_where_everything_is(cloud: Served) -> None:
    contract = cloud.contract

    assert set(contract) == {
        "servicebus",
        "cosmos",
        "hosts",
        "control",
        "queue",
        "containers",
    }
    assert contract["servicebus"]["east"].endswith("UseDevelopmentEmulator=true")
    assert set(contract["hosts"]) == {"east", "west"}
    assert (contract["queue"], contract["containers"]) == ("work", {"journal": "journal"})
    assert cloud.control("GET", "/health") == (200, {"status": "ok"})


def test_hosts_get_the_files_settings_below_those_of_options(cloud: Served) -> None:
    contract = cloud.contract
    store = "AccountEndpoint={endpoint};AccountKey={key};".format(**contract["cosmos"])

    for region in ("east", "west"):
        bus = contract["servicebus"]["east"]
        settings = [region, "from an option", bus, store, "from the file"]
        assert where(cloud, region) == "|".join(settings)


def test_a_killed_host_comes_back_on_its_port(cloud: Served) -> None:
    url = cloud.contract["hosts"]["east"]
    pid = cloud.control("GET", "/hosts")[1]["east"]["pid"]

    status, killed = cloud.control("POST", "/hosts/east", {"action": "kill"})
    assert (status, killed["state"], killed["pid"]) == (200, "stopped", None)
    assert not running(pid)
    with pytest.raises(ConnectionRefusedError):
        http("GET", url + "/api/where")
    assert where(cloud, "west").startswith("west|")

    status, started = cloud.control("POST", "/hosts/east", {"action": "start"})
    assert (status, started["state"], started["url"]) == (200, "running", url)
    assert started["pid"] != pid
    assert where(cloud, "east").startswith("east|")


def test_a_stopped_host_comes_back_too(cloud: Served) -> None:
    assert cloud.control("POST", "/hosts/west", {"action": "stop"})[1]["state"] == "stopped"
    assert cloud.control("POST", "/hosts/west", {"action": "start"})[1]["state"] == "running"
    assert where(cloud, "west").startswith("west|")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "/hosts/mars", {"action": "kill"}, 404, "mars"),
        ("POST", "/hosts/east", {"action": "tickle"}, 400, "tickle"),
        ("POST", "/faults", {"component": "cosmos", "action": "explode"}, 400, "explode"),
        ("POST", "/faults", "not json", 400, "not JSON"),
        ("POST", "/faults", [], 400, "object"),
        ("DELETE", "/faults/x", None, 404, "/faults/x"),
        ("GET", "/nowhere", None, 404, "/nowhere"),
    ],
)
def test_control_refuses_what_it_does_not_know_by_name(
    cloud: Served, method: str, path: str, body: Any, status: int, reason: str
) -> None:
    answered, document = cloud.control(method, path, body)

    assert answered == status
    assert reason in document["error"]


def test_faults_are_set_listed_and_lifted_through_control(cloud: Served) -> None:
    fault = {"component": "cosmos", "operation": "create", "action": "status", "status": 408}
    number = cloud.control("POST", "/faults", fault)[1]["id"]

    with pytest.raises(CosmosHttpResponseError) as failure:
        container(cloud).create_item({"id": "refused", "session": "s"})
    assert failure.value.status_code == 408
    listed = cloud.control("GET", "/faults")[1]
    assert [(one["id"], one["hits"]) for one in listed] == [(number, 1)]
    assert cloud.control("DELETE", f"/faults/{number}") == (200, {"lifted": 1})
    assert cloud.control("DELETE", "/faults") == (200, {"lifted": 0})
    container(cloud).create_item({"id": "accepted", "session": "s"})


def test_counters_tell_operations_and_queue_depths(cloud: Served) -> None:
    before = cloud.control("GET", "/counters")[1].get("cosmos.journal", {}).get("upsert", {})
    container(cloud).upsert_item({"id": "counted", "session": "s"})
    send(cloud, "waiting")

    counters = cloud.control("GET", "/counters")[1]

    row = counters["cosmos.journal"]["upsert"]["201"]
    assert row["count"] == before.get("201", {"count": 0})["count"] + 1
    assert row["request_units"] > 0
    assert row["bytes"] > 0
    assert counters["queues"]["east"]["work"]["active"] == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything_with_status_zero(app: Path, number: signal.Signals) -> None:
    with serving("--app", str(app)) as served:
        pids = [one["pid"] for one in served.control("GET", "/hosts")[1].values()]
        assert all(running(pid) for pid in pids)

        assert served.stop(number) == 0

        assert not any(running(pid) for pid in pids)


def test_no_host_outlives_a_sigkill(app: Path, tmp_path: Path) -> None:
    with serving("--app", str(app), "--logs", str(tmp_path)) as served:
        pids = [one["pid"] for one in served.control("GET", "/hosts")[1].values()]

        served.process.kill()
        served.process.wait()

        deadline = time.monotonic() + 15
        while any(running(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not any(running(pid) for pid in pids)


def test_without_hosts_it_stops_within_two_seconds(app: Path) -> None:
    with serving("--no-hosts", "--app", str(app)) as served:
        assert served.contract["hosts"] == {}
        started = time.monotonic()

        assert served.stop() == 0

        assert time.monotonic() - started < 2


def test_it_stops_with_whoever_holds_its_standard_input_open() -> None:
    command = [sys.executable, "-m", "local", "serve", "--no-hosts", "--until-stdin-ends"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["control"]

        process.stdin.close()

        assert process.wait(STOP_SECONDS_MAX) == 0


def test_data_is_kept_over_a_restart_and_belongs_to_one_process(app: Path, tmp_path: Path) -> None:
    options = ("--no-hosts", "--app", str(app), "--data", str(tmp_path / "data"))
    with serving(*options) as served:
        container(served).create_item({"id": "000", "session": "s", "n": 7})
        send(served, "kept")
        refused = launch(options)
        assert b"in use" in refused.communicate(timeout=30)[1]
        assert refused.returncode == 2
        served.process.kill()

    with serving(*options) as served:
        assert container(served).read_item("000", "s")["n"] == 7
        bus = ServiceBusClient.from_connection_string(served.contract["servicebus"]["east"])
        with bus, bus.get_queue_receiver("work", session_id="s") as receiver:
            messages = receiver.receive_messages(max_message_count=1, max_wait_time=10)
            assert [str(one) for one in messages] == ["kept"]


def free_base() -> int:
    """A port with some free ones above it, very likely."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return min(int(probe.getsockname()[1]), 64000)


def test_ports_follow_the_base_in_the_documented_order(app: Path) -> None:
    base = free_base()
    with serving("--no-hosts", "--app", str(app), "--port-base", str(base)) as served:
        contract = served.contract

        assert contract["control"] == f"http://127.0.0.1:{base}"
        assert contract["cosmos"]["endpoint"] == f"http://127.0.0.1:{base + 1}/"
        assert f"127.0.0.1:{base + 2};" in contract["servicebus"]["east"]


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 4])
def test_a_taken_port_is_one_line_and_status_two(app: Path, offset: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        base = str(port - offset)
        refused = launch(["--app", str(app), "--port-base", base])
        out, errors = refused.communicate(timeout=30)

    assert (refused.returncode, out) == (2, b"")
    assert len(errors.decode().splitlines()) == 1
    assert str(port) in errors.decode()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--config", "/nonexistent.json"], "/nonexistent.json"),
        (["--port-base", "many"], "--port-base"),
        (["--setting", "novalue"], "NAME=VALUE"),
    ],
)
def test_a_bad_option_is_status_two_and_named(options: list[str], reason: str) -> None:
    refused = launch(["--no-hosts", *options])
    errors = refused.communicate(timeout=30)[1].decode()

    assert refused.returncode == 2
    assert reason in errors


def test_a_bad_key_in_the_config_is_one_line_that_names_it(tmp_path: Path) -> None:
    config = tmp_path / "local.config.json"
    config.write_text(json.dumps({**CONFIG, "Cosmos": {"Databse": "typo"}}))

    refused = launch(["--no-hosts", "--config", str(config)])
    errors = refused.communicate(timeout=30)[1].decode()

    assert refused.returncode == 2
    assert len(errors.splitlines()) == 1
    assert "Cosmos.Databse" in errors


def test_a_host_that_dies_at_start_is_an_error_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text("raise RuntimeError('the app is broken')")
    (tmp_path / "host.json").write_text('{"version": "2.0"}')
    (tmp_path / "local.config.json").write_text(json.dumps(CONFIG))

    refused = launch(["--app", str(tmp_path)])
    out, errors = refused.communicate(timeout=60)

    assert (refused.returncode, out) == (1, b"")
    assert "region east" in errors.decode()
    assert "the app is broken" in errors.decode()
