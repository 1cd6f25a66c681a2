"""The control endpoint of `python -m local serve`: hosts, faults and counters from outside."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError

from local.testing.cloud import CloudProcess, running_cloud
from local.testing.control import request_json
from local.testing.patience import eventually
from wire.sample_cloud import container, is_running, send, write_app

pytestmark = pytest.mark.wire

DOWN = {"component": "cosmos.journal", "action": "down"}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudProcess]:
    app = write_app(tmp_path_factory.mktemp("app"))
    os.environ["INHERITED"] = "from the caller"
    with running_cloud("--app", str(app), settings={"EXTRA": "from an option"}) as served:
        yield served
    del os.environ["INHERITED"]


def where(served: CloudProcess, region: str) -> str:
    """What the app of a region says about its settings."""
    status, text = request_json("GET", served.contract["hosts"][region] + "/api/where")
    assert status == 200
    return str(text)


def test_the_line_tells_where_everything_is(cloud: CloudProcess) -> None:
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
    assert cloud.control.request("GET", "/health") == (200, {"status": "ok"})


def test_hosts_get_the_files_settings_below_those_of_options(cloud: CloudProcess) -> None:
    contract = cloud.contract
    store = "AccountEndpoint={endpoint};AccountKey={key};".format(**contract["cosmos"])

    for region in ("east", "west"):
        bus = contract["servicebus"]["east"]
        settings = [region, "from an option", bus, store, "from the file"]
        assert where(cloud, region) == "|".join(settings)


def test_a_killed_host_comes_back_on_its_port(cloud: CloudProcess) -> None:
    url = cloud.contract["hosts"]["east"]
    pid = cloud.control.request("GET", "/hosts")[1]["east"]["pid"]

    status, killed = cloud.control.request("POST", "/hosts/east", {"action": "kill"})
    assert (status, killed["state"], killed["pid"]) == (200, "stopped", None)
    assert not is_running(pid)
    with pytest.raises(ConnectionRefusedError):
        request_json("GET", url + "/api/where")
    assert where(cloud, "west").startswith("west|")

    status, started = cloud.control.request("POST", "/hosts/east", {"action": "start"})
    assert (status, started["state"], started["url"]) == (200, "running", url)
    assert started["pid"] != pid
    assert where(cloud, "east").startswith("east|")


def test_when_its_workers_die_too_often_a_host_is_started_again(cloud: CloudProcess) -> None:
    url = cloud.contract["hosts"]["west"]
    before = cloud.control.request("GET", "/hosts")[1]["west"]["pid"]
    for _ in range(3):
        eventually(lambda: where(cloud, "west"))
        assert cloud.control.request("POST", "/hosts/west", {"action": "kill-worker"})[0] == 200

    def process() -> int | None:
        pid: int | None = cloud.control.request("GET", "/hosts")[1]["west"]["pid"]
        return pid

    eventually(lambda: process() not in (before, None))
    eventually(lambda: where(cloud, "west"))
    assert cloud.contract["hosts"]["west"] == url


def test_a_stopped_host_comes_back_too(cloud: CloudProcess) -> None:
    assert cloud.control.request("POST", "/hosts/west", {"action": "stop"})[1]["state"] == "stopped"
    assert (
        cloud.control.request("POST", "/hosts/west", {"action": "start"})[1]["state"] == "running"
    )
    assert where(cloud, "west").startswith("west|")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", "/hosts/mars", {"action": "kill"}, 404, "mars"),
        ("POST", "/hosts/east", {"action": "tickle"}, 400, "tickle"),
        ("POST", "/faults", {"component": "cosmos", "action": "explode"}, 400, "explode"),
        ("POST", "/faults", {"component": "cosmos.jurnal", "action": "down"}, 400, "jurnal"),
        ("POST", "/faults", {**DOWN, "operation": "raed"}, 400, "raed"),
        ("POST", "/faults", {**DOWN, "action": "duplicate"}, 400, "duplicate never hits"),
        ("POST", "/faults", {**DOWN, "region": "mars"}, 400, "mars"),
        ("POST", "/faults", {**DOWN, "colour": "red"}, 400, "colour"),
        ("POST", "/faults", {**DOWN, "times": 1}, 400, "times"),
        ("POST", "/faults", {}, 400, "component"),
        ("POST", "/hosts/east", {"action": "kill", "force": True}, 400, "force"),
        ("POST", "/faults", "not json", 400, "not JSON"),
        ("POST", "/faults", [], 400, "object"),
        ("DELETE", "/faults/x", None, 404, "/faults/x"),
        ("GET", "/nowhere", None, 404, "/nowhere"),
    ],
)
def test_control_refuses_what_it_does_not_know_by_name(
    cloud: CloudProcess, method: str, path: str, body: Any, status: int, reason: str
) -> None:
    answered, document = cloud.control.request(method, path, body)

    assert answered == status
    assert reason in document["error"]


def test_faults_are_set_listed_and_lifted_through_control(cloud: CloudProcess) -> None:
    fault = {"component": "cosmos", "operation": "create", "action": "status", "status": 408}
    number = cloud.control.request("POST", "/faults", fault)[1]["id"]

    with pytest.raises(CosmosHttpResponseError) as failure:
        container(cloud).create_item({"id": "refused", "session": "s"})
    assert failure.value.status_code == 408
    listed = cloud.control.request("GET", "/faults")[1]
    assert [(one["id"], one["hits"]) for one in listed] == [(number, 1)]
    assert cloud.control.request("DELETE", f"/faults/{number}") == (200, {"lifted": 1})
    assert cloud.control.request("DELETE", "/faults") == (200, {"lifted": 0})
    container(cloud).create_item({"id": "accepted", "session": "s"})


def test_a_fault_may_hit_a_container_that_a_client_has_made(cloud: CloudProcess) -> None:
    fault = {"component": "cosmos.found", "operation": "read", "action": "delay"}
    assert cloud.control.request("POST", "/faults", fault)[0] == 400
    cosmos = cloud.contract["cosmos"]
    with CosmosClient(cosmos["endpoint"], cosmos["key"]) as client:
        database = client.get_database_client(cosmos["database"])
        database.create_container("found", PartitionKey("/id"))

    assert cloud.control.request("POST", "/faults", fault)[0] == 200
    assert cloud.control.request("DELETE", "/faults") == (200, {"lifted": 1})


def test_counters_tell_operations_and_queue_depths(cloud: CloudProcess) -> None:
    before = (
        cloud.control.request("GET", "/counters")[1].get("cosmos.journal", {}).get("upsert", {})
    )
    container(cloud).upsert_item({"id": "counted", "session": "s"})
    send(cloud, "waiting")

    counters = cloud.control.request("GET", "/counters")[1]

    row = counters["cosmos.journal"]["upsert"]["201"]
    assert row["count"] == before.get("201", {"count": 0})["count"] + 1
    assert row["request_units"] > 0
    assert row["bytes"] > 0
    assert counters["queues"]["east"]["work"]["active"] == 1


def test_what_a_queue_holds_is_listed_and_not_locked(cloud: CloudProcess) -> None:
    before = cloud.control.read_queue("east", "work")
    send(cloud, "listed")

    seen = [cloud.control.read_queue("east", "work") for _ in range(2)]

    assert seen[0] == seen[1]
    *others, listed = seen[0]
    assert others == before
    assert (listed["session"], listed["state"], bool(listed["id"])) == ("s", "active", True)
    assert listed["deliveries"] == 0
    for path in ("/queues/east/none", "/queues/north/work"):
        status, refusal = cloud.control.request("GET", path)
        assert (status, "there is no queue" in refusal["error"]) == (404, True)
