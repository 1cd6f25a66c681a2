"""Many messages at a time, from an emulated namespace into a real host."""

from itertools import pairwise
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from local.faults import Action, Fault
from local.servicebus.server import Namespace
from local.testing.patience import eventually
from wire.functions_host_bus import (
    BUS_APP,
    is_drained,
    message,
    numbers,
    running_namespace,
    runs,
    send,
)
from wire.functions_host_process import HostProcess, running_host

pytestmark = pytest.mark.wire


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


def test_a_batch_whose_lock_is_lost_while_it_is_completed_comes_again_though_it_succeeded(
    tmp_path: Path,
) -> None:
    lost = Fault("servicebus.east", Action.LOSE_LOCK, "complete", times=1)
    with running_namespace(lost) as namespace:
        send(namespace, "batches", (message({"n": n}, "s") for n in range(4)))
        with running_host(tmp_path, BUS_APP, ServiceBus=namespace.connection_string) as host:
            found = runs(host, "batches", 8)
            eventually(lambda: is_drained(namespace, "batches"))

        assert [numbers(run) for run in found] == [[0, 1, 2, 3]] * 2
        assert any("session s ended early" in line["message"] for line in host.log())


def test_an_empty_body_breaks_its_batch(namespace: Namespace, host: HostProcess) -> None:
    send(namespace, "heaps", [message({"n": 0}), ServiceBusMessage(b"")])

    lines = eventually(lambda: [x for x in host.log() if "IndexError" in x["message"]])

    assert lines[0]["function"] == "heaps"
    eventually(lambda: namespace.depth("heaps")["dead_lettered"] == 2)
