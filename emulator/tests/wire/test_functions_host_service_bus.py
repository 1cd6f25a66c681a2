"""Sessions from an emulated namespace through the real host process into the sample app."""

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from local.counters import Counters
from local.faults import Action, Fault, Faults
from local.servicebus.config import parse_namespaces
from local.servicebus.server import Namespace
from local.testing.answers import KEY
from local.testing.patience import eventually
from wire.functions_host_process import HostProcess, bus_client, running_host

pytestmark = pytest.mark.wire

QUEUE = {
    "Name": "sample",
    "Properties": {"RequiresSession": True, "LockDuration": "PT30S", "MaxDeliveryCount": 20},
}
HASTY = {
    "Name": "hasty",
    "Properties": {"RequiresSession": True, "LockDuration": "PT2S", "MaxDeliveryCount": 20},
}
CONFIG = {"Namespaces": [{"Name": "east", "Queues": [QUEUE, HASTY]}]}


class World:
    """A namespace, its faults and its counters."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.counters = Counters()
        (config,) = parse_namespaces(CONFIG)
        self.namespace = Namespace(config, port=0, faults=self.faults, counters=self.counters)

    def send(
        self, messages: Iterable[tuple[str, str, dict[str, Any]]], queue: str = "sample"
    ) -> None:
        """Send (session, message id, body) in order."""
        with (
            bus_client(self.namespace.connection_string) as client,
            client.get_queue_sender(queue) as sender,
        ):
            batch = [
                ServiceBusMessage(
                    json.dumps(body),
                    session_id=session,
                    message_id=message_id,
                    application_properties={"color": "red", "number": 7},
                )
                for session, message_id, body in messages
            ]
            sender.send_messages(batch)

    def is_drained(self, queue: str = "sample") -> bool:
        """Whether nothing waits and nothing is locked."""
        depth = self.namespace.depth(queue)
        return depth["active"] == depth["locked"] == 0

    def operations(self) -> dict[str, Any]:
        """The counters of the namespace."""
        return self.counters.snapshot()["servicebus.east"]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    world.namespace.start()
    yield world
    world.namespace.stop()


@pytest.fixture
def host(world: World, tmp_path: Path) -> Iterator[HostProcess]:
    with running_host(tmp_path, ServiceBus=world.namespace.connection_string) as host:
        yield host


def received(host: HostProcess, count: int) -> list[dict[str, Any]]:
    """The first messages the app noted, once there are so many."""
    return eventually(lambda: len(host.seen("messages")) >= count and host.seen("messages")) or []


def test_a_message_arrives_with_what_the_real_host_tells_of_it(
    world: World, host: HostProcess
) -> None:
    world.send([("N14228", "m-1", {"status": "departed"})])

    (note,) = received(host, 1)

    assert note["body"] == {"status": "departed"}
    assert (note["message_id"], note["session_id"]) == ("m-1", "N14228")
    assert note["delivery_count"] == 1
    assert note["sequence_number"] >= 1
    assert len(note["lock_token"]) == 36
    assert note["properties"] == {"color": "red", "number": 7}
    assert datetime.fromisoformat(note["enqueued"]).tzinfo is None
    assert {"UserProperties", "SessionId", "sys", "status"} <= set(note["metadata"])


def test_a_body_field_overwrites_the_metadata_of_the_same_name(
    world: World, host: HostProcess
) -> None:
    world.send([("N14228", "m-1", {"messageid": "forged", "SessionId": "stolen"})])

    (note,) = received(host, 1)

    assert (note["message_id"], note["session_id"]) == ("forged", "stolen")


def test_sessions_run_side_by_side_and_each_in_order(world: World, host: HostProcess) -> None:
    sessions = [f"s{number}" for number in range(12)]
    world.send((s, f"{s}-{n}", {"n": n, "pause": 0.02}) for n in range(4) for s in sessions)

    notes = received(host, 48)

    for session in sessions:
        own = [note for note in notes if note["session_id"] == session]
        assert [note["body"]["n"] for note in own] == [0, 1, 2, 3]
        assert all(a["ended"] <= b["began"] for a, b in pairwise(own))
    at_once = max(sum(o["began"] <= n["began"] < o["ended"] for o in notes) for n in notes)
    assert 2 <= at_once <= 4
    eventually(world.is_drained)


def test_a_failed_message_comes_again_first_in_its_session(world: World, host: HostProcess) -> None:
    world.send([("s1", "m-1", {"n": 1, "failures": 2}), ("s1", "m-2", {"n": 2})])

    notes = received(host, 4)

    assert [(n["body"]["n"], n["delivery_count"]) for n in notes] == [
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 1),
    ]
    eventually(world.is_drained)
    assert any("asked to fail" in line["message"] for line in host.log())


def test_what_cannot_be_decoded_becomes_a_dead_letter_and_its_session_goes_on(
    world: World, host: HostProcess
) -> None:
    with (
        bus_client(world.namespace.connection_string) as client,
        client.get_queue_sender("sample") as sender,
    ):
        properties: list[dict[str | bytes, Any]] = [
            {b"\xff": "the SDK sends keys that are bytes as they are"},
            {"color": "red"},
        ]
        for number, own in enumerate(properties):
            message = ServiceBusMessage(
                json.dumps({"n": number}), session_id="N1", message_id=f"m-{number}"
            )
            message.application_properties = own
            sender.send_messages(message)

    notes = received(host, 1)

    assert [note["message_id"] for note in notes] == ["m-1"]
    assert eventually(world.is_drained)
    assert world.namespace.depth("sample")["dead_lettered"] == 1
    assert any("not a message that can be decoded" in line["message"] for line in host.log())


def test_a_lock_is_renewed_while_a_function_runs(world: World, tmp_path: Path) -> None:
    app = app_with(tmp_path, functionTimeout="00:01:00")
    connection = world.namespace.connection_string
    with running_host(tmp_path, app, ServiceBus=connection, SAMPLE_QUEUE="hasty") as host:
        world.send([("s1", "m-1", {"pause": 3.5})], "hasty")

        notes = received(host, 1)

        eventually(lambda: world.is_drained("hasty"))
        assert [note["delivery_count"] for note in notes] == [1]
        assert host.seen("messages") == notes


def test_a_lock_that_is_renewed_no_more_is_lost_and_the_message_comes_again(
    world: World, tmp_path: Path
) -> None:
    limits = {"maxAutoLockRenewalDuration": "00:00:00.3", "maxConcurrentSessions": 4}
    app = app_with(tmp_path, functionTimeout="00:01:00", extensions={"serviceBus": limits})
    connection = world.namespace.connection_string
    with running_host(tmp_path, app, ServiceBus=connection, SAMPLE_QUEUE="hasty") as host:
        world.send([("s1", "m-1", {"pause": 2.8})], "hasty")

        notes = received(host, 2)

        assert [note["delivery_count"] for note in notes[:2]] == [1, 2]
        assert any("session s1 ended early" in line["message"] for line in host.log())


def test_a_large_message_arrives_whole(world: World, host: HostProcess) -> None:
    text = "".join(f"{number:06d}" for number in range(40_000))
    world.send([("s1", "m-1", {"text": text})])

    (note,) = received(host, 1)

    assert note["body"]["text"] == text


def test_a_queue_that_does_not_exist_is_logged_once(world: World, tmp_path: Path) -> None:
    connection = world.namespace.connection_string
    with running_host(tmp_path, ServiceBus=connection, SAMPLE_QUEUE="nowhere") as host:
        refusals = eventually(lambda: [x for x in host.log() if "refuses" in x["message"]])

        assert refusals
        assert len(refusals) == 1
        assert "not-found" in refusals[0]["message"]


def test_the_host_waits_for_a_namespace_that_is_down_and_goes_on_when_it_is_back(
    world: World, host: HostProcess
) -> None:
    world.send([("s1", "m-1", {"n": 1})])
    received(host, 1)
    eventually(world.is_drained)

    fault = world.faults.arm(Fault("servicebus.east", Action.DOWN))
    eventually(lambda: any("is down" in line["message"] for line in host.log()))
    world.faults.disarm(fault)
    eventually(lambda: sends(world, "m-2"))

    assert [note["message_id"] for note in received(host, 2)] == ["m-1", "m-2"]
    eventually(world.is_drained)


def test_a_drain_lets_the_running_messages_settle_and_leaves_the_rest(
    world: World, tmp_path: Path
) -> None:
    app = app_with(tmp_path, functionTimeout="00:01:00")
    with running_host(tmp_path, app, ServiceBus=world.namespace.connection_string) as host:
        held = {"until": str(tmp_path / "released")}
        world.send((f"s{n % 4}", f"m-{n}", {"n": n, **held}) for n in range(8))
        eventually(lambda: world.namespace.depth("sample")["locked"] == 4)

        assert host.request("/admin/host/drain", "POST", headers=KEY).status == 202
        (tmp_path / "released").touch()
        assert host.end() == 0

    depth = world.namespace.depth("sample")
    assert (depth["active"], depth["locked"]) == (4, 0)
    world_after = world.operations()
    assert "abandon" not in world_after


def test_an_idle_session_is_let_go_for_others(world: World, host: HostProcess) -> None:
    world.send((f"s{n}", f"m-{n}", {"n": n}) for n in range(20))

    notes = received(host, 20)

    assert sorted(note["body"]["n"] for note in notes) == list(range(20))
    assert len({note["session_id"] for note in notes}) == 20


def sends(world: World, message_id: str) -> bool:
    """Try to send one message."""
    try:
        world.send([("s2", message_id, {"n": 2})])
    except Exception:
        return False
    return True


def app_with(tmp_path: Path, **limits: Any) -> Path:
    """A copy of the sample app with other limits."""
    sample = Path(__file__).parent / "sample_app"
    app = tmp_path / "app"
    app.mkdir()
    (app / "function_app.py").write_text((sample / "function_app.py").read_text())
    document = {**json.loads((sample / "host.json").read_text()), **limits}
    (app / "host.json").write_text(json.dumps(document))
    return app
