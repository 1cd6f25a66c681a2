"""Faults: a namespace that is down, busy, slow, or silent after it has acted."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from local.faults import Action, Fault
from local.servicebus.server import Namespace
from local.testing.patience import Patience, eventually
from wire.service_bus import (
    CONFIG,
    NEXT_AVAILABLE_SESSION,
    Bus,
    receive_one,
    running_bus,
)

pytestmark = pytest.mark.wire
EAST = "servicebus.east"
QUEUE = "parcels"
SOON_SECONDS = 30.0  # half of what a client stays for, which a stop must not wait for


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def answers(bus: Bus) -> bool:
    """Whether a new client gets through."""
    try:
        with bus.client.get_queue_sender(QUEUE):
            return True
    except ServiceBusConnectionError:
        return False


def test_a_namespace_that_was_down_comes_back_with_its_queues_intact(bus: Bus) -> None:
    bus.send("flights", "departed", "arrived", session="N101")
    with bus.client.get_queue_sender("flights") as sender:
        fault = bus.faults.arm(Fault(EAST, Action.DOWN))
        assert eventually(lambda: not answers(bus))
        with pytest.raises(ServiceBusConnectionError):
            sender.send_messages(ServiceBusMessage("lost", session_id="N101"))

    bus.faults.disarm(fault)
    assert eventually(lambda: answers(bus))

    with bus.receiver("flights", NEXT_AVAILABLE_SESSION) as receiver:
        bodies = []
        for _ in range(2):
            message = receive_one(receiver)
            receiver.complete_message(message)
            bodies.append(str(message))
    assert bodies == ["departed", "arrived"]


def test_a_session_held_when_the_namespace_went_down_is_free_when_its_lock_expires(
    bus: Bus,
) -> None:
    bus.send("hasty", "departed", session="N102")
    receiver = bus.receiver("hasty", "N102")
    receive_one(receiver)

    fault = bus.faults.arm(Fault(EAST, Action.DOWN))
    assert eventually(lambda: not answers(bus))
    bus.faults.disarm(fault)
    assert eventually(lambda: answers(bus))

    with bus.receiver("hasty", NEXT_AVAILABLE_SESSION) as again:
        message = receive_one(again)
        again.complete_message(message)
    receiver.close()
    assert (str(message), message.delivery_count) == ("departed", 1)


def test_a_busy_service_applies_nothing(bus: Bus) -> None:
    bus.faults.arm(Fault(EAST, Action.STATUS, operation="send", times=1))

    with bus.client.get_queue_sender(QUEUE) as sender:
        with pytest.raises(ServiceBusServerBusyError):
            sender.send_messages(ServiceBusMessage("refused"))
        assert bus.namespace.depth(QUEUE)["active"] == 0
        sender.send_messages(ServiceBusMessage("taken"))

    assert bus.namespace.depth(QUEUE)["active"] == 1
    assert bus.count("send", "server-busy") == 1


def test_a_send_may_be_applied_without_an_answer(bus: Bus) -> None:
    bus.faults.arm(Fault(EAST, Action.DROP_ANSWER, operation="send", times=1))

    with (
        bus.client.get_queue_sender(QUEUE) as sender,
        pytest.raises(OperationTimeoutError),
    ):
        sender.send_messages(ServiceBusMessage("sent"), timeout=1)

    assert eventually(lambda: bus.namespace.depth(QUEUE)["active"] == 1)


def test_a_settlement_may_be_slow(bus: Bus) -> None:
    bus.send(QUEUE, "slow")
    bus.faults.arm(Fault(EAST, Action.DELAY, operation="complete", seconds=0.4, times=1))

    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        began = time.monotonic()
        receiver.complete_message(message)

    assert time.monotonic() - began >= 0.4
    assert bus.namespace.depth(QUEUE)["locked"] == 0


def test_a_stop_does_not_wait_for_clients(bus: Bus) -> None:
    with bus.receiver("flights", "N103") as receiver, bus.client.get_queue_sender(QUEUE):
        assert receiver.session.session_id == "N103"
        patience = Patience(SOON_SECONDS)
        bus.namespace.stop()
        assert not patience.is_over()
        bus.namespace.stop()


def test_a_port_that_is_taken_is_told_at_the_start(bus: Bus) -> None:
    taken = Namespace(CONFIG, port=bus.namespace.port, faults=bus.faults, counters=bus.counters)

    with pytest.raises(OSError, match=f"port {bus.namespace.port} for servicebus.east"):
        taken.start()
    with pytest.raises(RuntimeError, match="already running"):
        bus.namespace.start()


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    with running_bus(tmp_path) as bus:
        bus.send("flights", "one", "two", "three", session="N104")
        with bus.receiver("flights", "N104") as receiver:
            receiver.complete_message(receive_one(receiver))
            receiver.abandon_message(receive_one(receiver))
            receiver.session.set_state(b"gate 7")
        bus.send(QUEUE, "broken")
        with bus.receiver(QUEUE) as receiver:
            receiver.dead_letter_message(receive_one(receiver), reason="unreadable")

    with running_bus(tmp_path) as bus:
        assert bus.namespace.depth(QUEUE)["dead_lettered"] == 1
        bus.send("flights", "four", session="N104")
        with bus.receiver("flights", "N104") as receiver:
            assert receiver.session.get_state() == b"gate 7"
            kept = []
            for _ in range(3):
                message = receive_one(receiver)
                receiver.complete_message(message)
                kept.append((str(message), message.sequence_number, message.delivery_count))
    assert kept == [("two", 2, 1), ("three", 3, 0), ("four", 4, 0)]


def test_a_client_left_open_does_not_disturb_the_next_namespace() -> None:
    with running_bus() as first:
        forgotten = ServiceBusClient.from_connection_string(first.namespace.connection_string)
        sender = forgotten.get_queue_sender(QUEUE)
        sender.send_messages(ServiceBusMessage("left behind"))
    with running_bus() as second:
        second.send(QUEUE, "fresh")
        assert second.namespace.depth(QUEUE)["active"] == 1
    forgotten.close()
