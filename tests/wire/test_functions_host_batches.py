"""Batches, plain queues and subscriptions, from an emulated namespace into a real host."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from local.counters import Counters
from local.faults import Faults
from local.servicebus.config import parse_namespaces
from local.servicebus.server import Namespace
from tests.wire.functions_host_process import HostProcess, bus_client, eventually, running_host

pytestmark = pytest.mark.wire

APP = Path(__file__).parent / "bus_app"
BRIEF = {"LockDuration": "PT2S", "MaxDeliveryCount": 5}
IDENTITY_APP = """
import azure.functions as func
app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
seen = []
@app.service_bus_queue_trigger(arg_name="m", queue_name="plain", connection="Bus")
def take(m: func.ServiceBusMessage) -> None:
    seen.append(m.message_id)
@app.route("seen/ids")
def tell(req: func.HttpRequest) -> str:
    return __import__("json").dumps(seen)
"""
CONFIG = {
    "Namespaces": [
        {
            "Name": "east",
            "Queues": [
                {"Name": "plain", "Properties": BRIEF},
                {"Name": "heaps", "Properties": BRIEF},
                {"Name": "batches", "Properties": {**BRIEF, "RequiresSession": True}},
            ],
            "Topics": [{"Name": "news", "Subscriptions": [{"Name": "all", "Properties": BRIEF}]}],
        }
    ]
}


@contextmanager
def running_namespace() -> Iterator[Namespace]:
    """A namespace for one `with` block."""
    (config,) = parse_namespaces(CONFIG)
    namespace = Namespace(config, port=0, faults=Faults(), counters=Counters())
    namespace.start()
    try:
        yield namespace
    finally:
        namespace.stop()


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with running_namespace() as namespace:
        yield namespace


@pytest.fixture(scope="module")
def shared_host(
    namespace: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostProcess]:
    path = tmp_path_factory.mktemp("batches")
    with running_host(path, APP, ServiceBus=namespace.connection_string) as host:
        yield host


@pytest.fixture
def host(shared_host: HostProcess) -> HostProcess:
    """The host, with nothing seen yet."""
    assert shared_host.request("/api/forget", "POST").status == 200
    return shared_host


def message(body: dict[str, Any], session: str | None = None, **rest: Any) -> ServiceBusMessage:
    """A message with a JSON body."""
    return ServiceBusMessage(json.dumps(body), session_id=session, **rest)


def send(namespace: Namespace, entity: str, messages: Iterable[ServiceBusMessage]) -> None:
    """Send messages together, so that they are there at once."""
    with bus_client(namespace.connection_string) as client:
        is_topic = entity == "news"
        sender = client.get_topic_sender if is_topic else client.get_queue_sender
        with sender(entity) as link:
            link.send_messages(list(messages))


def runs(host: HostProcess, kind: str, messages: int) -> list[dict[str, Any]]:
    """The runs so far, once they were given so many messages."""

    def enough() -> bool:
        return sum(len(run["messages"]) for run in host.seen(kind)) >= messages

    eventually(enough)
    return host.seen(kind)


def numbers(run: dict[str, Any]) -> list[int]:
    """The numbers in the bodies of a run."""
    return [note["body"]["n"] for note in run["messages"]]


def is_drained(namespace: Namespace, queue: str) -> bool:
    """Whether nothing waits and nothing is locked."""
    depth = namespace.depth(queue)
    return depth["active"] == depth["locked"] == 0


def test_a_plain_queue_is_worked_off_by_so_many_calls_at_a_time(
    namespace: Namespace, host: HostProcess
) -> None:
    send(
        namespace, "plain", (message({"n": n, "pause": 0.1}, message_id=f"m{n}") for n in range(9))
    )

    found = runs(host, "plain", 9)

    assert sorted(note for run in found for note in numbers(run)) == list(range(9))
    assert {run["messages"][0]["message_id"] for run in found} == {f"m{n}" for n in range(9)}
    at_once = max(sum(o["began"] <= r["began"] < o["ended"] for o in found) for r in found)
    assert 2 <= at_once <= 3
    eventually(lambda: is_drained(namespace, "plain"))


def test_a_failed_plain_message_comes_again_until_it_is_done(
    namespace: Namespace, host: HostProcess
) -> None:
    send(namespace, "plain", [message({"n": 1, "failures": 2})])

    found = runs(host, "plain", 3)

    assert [run["messages"][0]["delivery_count"] for run in found] == [1, 2, 3]
    eventually(lambda: is_drained(namespace, "plain"))


def test_the_lock_of_a_plain_message_is_renewed_while_the_function_runs(
    namespace: Namespace, host: HostProcess
) -> None:
    send(namespace, "plain", [message({"n": 1, "pause": 2.6})])

    found = runs(host, "plain", 1)

    eventually(lambda: is_drained(namespace, "plain"))
    assert [run["messages"][0]["delivery_count"] for run in found] == [1]
    assert host.seen("plain") == found


def test_a_host_that_stops_leaves_no_plain_message_locked(tmp_path: Path) -> None:
    with running_namespace() as namespace:
        connection = namespace.connection_string
        with running_host(tmp_path, APP, ServiceBus=connection) as host:
            send(namespace, "plain", (message({"n": n, "pause": 0.5}) for n in range(6)))
            eventually(lambda: namespace.depth("plain")["locked"] == 3)

            assert host.end() == 0

        depth = namespace.depth("plain")
        assert (depth["active"], depth["locked"]) == (3, 0)
        with (
            bus_client(connection) as client,
            client.get_queue_receiver("plain", receive_mode="receiveanddelete") as receiver,
        ):
            left = [receiver.next() for _ in range(3)]
        assert {message.delivery_count for message in left} == {0}


def test_a_subscription_hands_over_what_was_sent_to_its_topic(
    namespace: Namespace, host: HostProcess
) -> None:
    send(namespace, "news", [message({"n": 7}, message_id="m7", subject="late")])

    (run,) = runs(host, "news", 1)

    assert numbers(run) == [7]
    assert run["messages"][0]["message_id"] == "m7"


def test_a_plain_queue_comes_in_batches_one_after_the_other(
    namespace: Namespace, host: HostProcess
) -> None:
    send(
        namespace, "heaps", (message({"n": n}, application_properties={"at": n}) for n in range(10))
    )

    found = runs(host, "heaps", 10)

    assert [note for run in found for note in numbers(run)] == list(range(10))
    assert max(len(run["messages"]) for run in found) == 4
    assert all(a["ended"] <= b["began"] for a, b in pairwise(found))
    notes = [note for run in found for note in run["messages"]]
    assert [note["properties"] for note in notes] == [{"at": n} for n in range(10)]
    assert notes[0]["sequence_number"] < notes[9]["sequence_number"]
    eventually(lambda: is_drained(namespace, "heaps"))


def test_a_value_some_messages_lack_moves_to_the_wrong_message(
    namespace: Namespace, host: HostProcess
) -> None:
    sent = [message({"n": 0}), message({"n": 1}, correlation_id="of the second")]
    send(namespace, "heaps", sent)

    found = runs(host, "heaps", 2)

    notes = found[0]["messages"]
    assert [note["correlation_id"] for note in notes] == ["of the second", None]


def test_batches_with_sessions_hold_one_session_and_one_at_a_time(
    namespace: Namespace, host: HostProcess
) -> None:
    sessions = ("a", "b", "c")
    send(
        namespace,
        "batches",
        (message({"n": n}, session) for n in range(6) for session in sessions),
    )

    found = runs(host, "batches", 18)

    assert all(len({note["session_id"] for note in run["messages"]}) == 1 for run in found)
    assert all(a["ended"] <= b["began"] for a, b in pairwise(found))
    for session in sessions:
        own = [run for run in found if run["messages"][0]["session_id"] == session]
        assert [note for run in own for note in numbers(run)] == list(range(6))
    eventually(lambda: is_drained(namespace, "batches"))


def test_a_failed_batch_is_abandoned_whole_and_comes_again_in_order(
    namespace: Namespace, host: HostProcess
) -> None:
    send(
        namespace,
        "batches",
        (message({"n": n, "failures": 1 if n == 2 else 0}, "s") for n in range(6)),
    )

    found = runs(host, "batches", 10)

    assert [numbers(run) for run in found] == [[0, 1, 2, 3], [0, 1, 2, 3], [4, 5]]
    counts = [[note["delivery_count"] for note in run["messages"]] for run in found]
    assert counts == [[1] * 4, [2] * 4, [1] * 2]
    eventually(lambda: is_drained(namespace, "batches"))


def test_an_empty_body_breaks_its_batch(namespace: Namespace, host: HostProcess) -> None:
    send(namespace, "heaps", [message({"n": 0}), ServiceBusMessage(b"")])

    said = eventually(lambda: [x for x in host.log() if "IndexError" in x["message"]])

    assert said[0]["function"] == "heaps"
    eventually(lambda: namespace.depth("heaps")["dead_lettered"] == 2)


def test_a_connection_by_identity_reaches_an_emulator(tmp_path: Path) -> None:
    (tmp_path / "function_app.py").write_text(IDENTITY_APP)
    (tmp_path / "host.json").write_text('{"version": "2.0"}')
    with (
        running_namespace() as namespace,
        running_host(
            tmp_path, tmp_path, Bus__fullyQualifiedNamespace=f"127.0.0.1:{namespace.port}"
        ) as host,
    ):
        send(namespace, "plain", [message({"n": 1}, message_id="m1")])

        assert eventually(lambda: host.seen("ids")) == ["m1"]
