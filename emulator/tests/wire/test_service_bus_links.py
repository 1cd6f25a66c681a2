"""A namespace that is far away, or silent; an entity that is dead or full while others are not."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from local.faults import Action, Fault
from local.testing.patience import Patience, PatienceExhausted, eventually
from wire.service_bus import Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
EAST, QUEUE = "servicebus.east", "parcels"
FAR_SECONDS = 0.13
VERY_FAR_SECONDS = 1.0


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def test_over_a_slow_link_a_send_takes_a_round_trip_and_messages_keep_their_order(
    bus: Bus,
) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        fault = bus.faults.arm(Fault(EAST, Action.SLOW_LINK, seconds=FAR_SECONDS))
        began = time.monotonic()
        for body in ("a", "b", "c"):
            sender.send_messages(ServiceBusMessage(body))
        took = time.monotonic() - began
        bus.faults.disarm(fault)

    assert took >= 3 * 2 * FAR_SECONDS
    with bus.receiver(QUEUE) as receiver:
        assert [str(message) for message in receive(receiver, 3)] == ["a", "b", "c"]


def test_a_slow_link_delays_the_delivery_to_a_client_that_waits(bus: Bus) -> None:
    with (
        bus.receiver(QUEUE) as receiver,
        ServiceBusClient.from_connection_string(bus.namespace.connection_string) as near,
        near.get_queue_sender(QUEUE) as sender,
    ):
        assert receiver.receive_messages(max_wait_time=0.1) == []
        bus.faults.arm(Fault(EAST, Action.SLOW_LINK, seconds=FAR_SECONDS))
        sender.send_messages(ServiceBusMessage("far"))
        arrived = time.time()  # at least one way ago the namespace had it
        message = receive_one(receiver)
        assert message.enqueued_time_utc is not None
        under_way = time.time() - message.enqueued_time_utc.timestamp()

    assert arrived - message.enqueued_time_utc.timestamp() >= FAR_SECONDS - 0.001
    assert under_way >= FAR_SECONDS - 0.001


def test_what_is_under_way_together_arrives_together(bus: Bus) -> None:
    messages = [ServiceBusMessage(str(number)) for number in range(20)]
    with bus.client.get_queue_sender(QUEUE) as sender, bus.receiver(QUEUE) as receiver:
        sender.send_messages(messages)
        receiver.peek_messages()
        bus.faults.arm(Fault(EAST, Action.SLOW_LINK, seconds=VERY_FAR_SECONDS))
        patience = Patience(10 * VERY_FAR_SECONDS)
        bodies = [str(message) for message in receive(receiver, 20)]

    assert bodies == [str(number) for number in range(20)]
    assert not patience.is_over(), "half of what one after the other takes"


def test_a_silent_namespace_takes_connections_and_answers_nobody_until_it_speaks_again(
    bus: Bus,
) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        fault = bus.faults.arm(Fault(EAST, Action.SILENT))
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("unheard"), timeout=0.5)
        with socket.create_connection((bus.namespace.host, bus.namespace.port)) as client:
            client.settimeout(0.5)
            client.sendall(b"AMQP\0\1\0\0")
            with pytest.raises(TimeoutError):
                client.recv(1)
        assert bus.namespace.depth(QUEUE)["active"] == 0
        bus.faults.disarm(fault)
        # What was sent into the silence is heard when it ends, as over a network that comes back.
        assert eventually(lambda: bus.namespace.depth(QUEUE)["active"] == 1)
        sender.send_messages(ServiceBusMessage("heard"))

    with bus.receiver(QUEUE) as receiver:
        assert [str(message) for message in receive(receiver, 2)] == ["unheard", "heard"]


def test_a_client_that_leaves_in_the_silence_is_missed_when_it_ends(bus: Bus) -> None:
    bus.send("flights", "departed", session="N101")
    receiver = bus.receiver("flights", "N101")
    receive_one(receiver)
    fault = bus.faults.arm(Fault(EAST, Action.SILENT))
    connection: Any = receiver._handler._connection
    connection._transport.sock.shutdown(socket.SHUT_RDWR)
    with pytest.raises(PatienceExhausted):
        eventually(lambda: bus.namespace.depth("flights")["active"] == 1, seconds=0.5)

    bus.faults.disarm(fault)

    assert eventually(lambda: bus.namespace.depth("flights")["active"] == 1)
    receiver.close()


def test_a_quota_of_one_queue_leaves_the_others_alone(bus: Bus) -> None:
    bus.faults.arm(Fault(EAST, Action.STATUS, "send", status=403, entity="Parcels"))

    with pytest.raises(ServiceBusQuotaExceededError):
        bus.send(QUEUE, "too much")
    bus.send("short", "enough")

    assert bus.namespace.depth(QUEUE)["active"] == 0
    assert bus.namespace.depth("short")["active"] == 1


def test_a_quota_of_a_topic_is_not_that_of_its_namespace(bus: Bus) -> None:
    bus.faults.arm(Fault(EAST, Action.STATUS, "send", status=403, entity="news"))

    with (
        bus.client.get_topic_sender("news") as sender,
        pytest.raises(ServiceBusQuotaExceededError),
    ):
        sender.send_messages(ServiceBusMessage("too much"))
    bus.send(QUEUE, "enough")

    assert bus.namespace.depth("news/Subscriptions/everything")["active"] == 0


@pytest.mark.parametrize(
    ("status", "expected"), [(503, ServiceBusServerBusyError), (404, MessagingEntityNotFoundError)]
)
def test_a_dead_entity_loses_its_links_and_takes_none_while_its_neighbours_serve(
    bus: Bus, status: int, expected: type[ServiceBusError]
) -> None:
    bus.send(QUEUE, "kept")
    with bus.client.get_queue_sender(QUEUE) as attached, bus.receiver("short") as neighbour:
        neighbour.peek_messages()
        fault = bus.faults.arm(Fault(EAST, Action.DOWN, status=status, entity=QUEUE))

        def is_detached() -> bool:
            try:
                attached.send_messages(ServiceBusMessage("late"), timeout=5)
            except ServiceBusError as error:
                return isinstance(error, expected)
            return False

        assert eventually(is_detached)
        with pytest.raises(expected), bus.client.get_queue_sender(QUEUE):
            pass
        with pytest.raises(expected), bus.receiver(f"{QUEUE}/$DeadLetterQueue") as dead_letters:
            dead_letters.peek_messages()
        bus.send("short", "served")
        assert str(receive_one(neighbour)) == "served"

        bus.faults.disarm(fault)

    with bus.receiver(QUEUE) as receiver:
        assert str(receive_one(receiver)) == "kept"


def test_a_connection_is_refused_when_a_namespace_is_down_and_silent(bus: Bus) -> None:
    bus.faults.arm(Fault(EAST, Action.DOWN))
    bus.faults.arm(Fault(EAST, Action.SILENT))

    def is_refused() -> bool:
        try:
            socket.create_connection((bus.namespace.host, bus.namespace.port)).close()
        except ConnectionRefusedError:
            return True
        return False

    assert eventually(is_refused)
    with pytest.raises(ServiceBusConnectionError):
        bus.send(QUEUE, "lost")
