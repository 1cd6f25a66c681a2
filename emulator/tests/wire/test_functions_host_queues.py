"""Queues without sessions, subscriptions, dead letters, and bodies as text and as bytes."""

import time
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from local.servicebus.server import Namespace
from local.testing.answers import KEY
from local.testing.patience import eventually
from wire.functions_host_bus import (
    BUS_APP,
    LIMITS,
    is_drained,
    message,
    numbers,
    running_namespace,
    runs,
    send,
)
from wire.functions_host_process import HostProcess, bus_client, running_host

pytestmark = pytest.mark.wire

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
    send(namespace, "plain", [message({"n": 1, "pause": 5.2})])

    found = runs(host, "plain", 1)

    eventually(lambda: is_drained(namespace, "plain"))
    assert [run["messages"][0]["delivery_count"] for run in found] == [1]
    assert host.seen("plain") == found


def test_a_host_that_was_drained_leaves_no_plain_message_locked(tmp_path: Path) -> None:
    with running_namespace() as namespace:
        connection = namespace.connection_string
        with running_host(tmp_path, BUS_APP, ServiceBus=connection) as host:
            held = {"until": str(tmp_path / "released")}
            send(namespace, "plain", (message({"n": n, **held}) for n in range(6)))
            eventually(lambda: namespace.depth("plain")["locked"] == 3)

            assert host.request("/admin/host/drain", "POST", headers=KEY).status == 202
            (tmp_path / "released").touch()
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


def test_a_subscription_with_sessions_hands_each_over_in_order(
    namespace: Namespace, host: HostProcess
) -> None:
    send(namespace, "tales", (message({"n": n}, f"s{n % 2}") for n in range(8)))

    found = runs(host, "tales", 8)

    for session, expected in (("s0", [0, 2, 4, 6]), ("s1", [1, 3, 5, 7])):
        own = [run for run in found if run["messages"][0]["session_id"] == session]
        assert [note for run in own for note in numbers(run)] == expected


def test_bodies_that_are_no_text_arrive_whole_only_as_binary(
    namespace: Namespace, host: HostProcess
) -> None:
    bodies = [b"\x00\xff\xfe", b'{"MessageId": "forged"}']
    for queue in ("text", "raw", "raws"):
        send(namespace, queue, map(ServiceBusMessage, bodies))

    def taken(kind: str) -> list[bytes]:
        return sorted(bytes.fromhex(body) for run in host.seen(kind) for body in run)

    eventually(lambda: all(len(taken(kind)) == 2 for kind in ("text", "raw", "raws")))
    assert taken("raw") == taken("raws") == bodies
    assert taken("text") == ["\x00\ufffd\ufffd".encode(), bodies[1]]


def test_the_data_sections_of_a_body_arrive_joined(namespace: Namespace, host: HostProcess) -> None:
    sections = [[b'{"a": ', b"1}"], [b"x", b"", b"y" * 300], [b"first", b""], [b"", b"last"]]
    with bus_client(namespace.connection_string) as client:
        for queue in ("text", "raw", "raws"):
            with client.get_queue_sender(queue) as sender:
                for body in sections:
                    sender.send_messages(AmqpAnnotatedMessage(data_body=body))

    def taken(kind: str) -> list[bytes]:
        return sorted(bytes.fromhex(body) for run in host.seen(kind) for body in run)

    kinds = ("text", "raw", "raws")
    eventually(lambda: all(len(taken(kind)) == len(sections) for kind in kinds))
    for kind in kinds:
        assert taken(kind) == sorted(b"".join(body) for body in sections)


def test_invocations_cost_the_host_what_the_setting_says_one_after_another(tmp_path: Path) -> None:
    count, cost_seconds = 9, 0.1
    with running_namespace() as namespace:
        settings = {"ServiceBus": namespace.connection_string, "LOCAL_HOST_INVOCATION_MS": "100"}
        with running_host(tmp_path, BUS_APP, **settings) as host:
            began = time.monotonic()
            send(namespace, "plain", (message({"n": n}) for n in range(count)))

            found = runs(host, "plain", count)

        assert max(run["ended"] for run in found) - began >= count * cost_seconds


@pytest.mark.parametrize(
    ("entity", "session", "kind"),
    [("plain", None, "dead"), ("news", None, "deadnews"), ("batches", "s", "deadbatches")],
)
def test_a_plain_trigger_watches_the_dead_letters_of_a_queue(
    namespace: Namespace, host: HostProcess, entity: str, session: str | None, kind: str
) -> None:
    body = {"n": 1, "failures": LIMITS["MaxDeliveryCount"]}
    send(namespace, entity, [message(body, session, message_id="m1")])

    (run,) = runs(host, kind, 1)

    (note,) = run["messages"]
    assert (note["body"], note["message_id"]) == (body, "m1")
    assert note["session_id"] == session
    assert note["properties"]["DeadLetterReason"] == "MaxDeliveryCountExceeded"
    assert "5 delivery" in note["properties"]["DeadLetterErrorDescription"]
    watched = "news/Subscriptions/all" if entity == "news" else entity
    eventually(lambda: namespace.depth(watched)["dead_lettered"] == 0)


def test_a_dead_letter_that_fails_comes_again_without_end(
    namespace: Namespace, host: HostProcess
) -> None:
    most = LIMITS["MaxDeliveryCount"]
    send(namespace, "plain", [message({"n": 1, "failures": most, "failuresWhenDead": most * 2})])

    found = runs(host, "dead", most + 1)

    counts = [run["messages"][0]["delivery_count"] for run in found]
    assert counts == list(range(most + 1, most * 2 + 2))
    eventually(lambda: namespace.depth("plain")["dead_lettered"] == 0)


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
