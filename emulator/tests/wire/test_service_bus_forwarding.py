"""Queues and subscriptions that forward, as seen by azure-servicebus.

https://learn.microsoft.com/azure/service-bus-messaging/service-bus-auto-forwarding
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from local.faults import Action, Fault
from local.servicebus.config import (
    NamespaceConfig,
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
    subscription_path,
)
from local.testing.patience import eventually
from wire.service_bus import CONFIG, Bus, receive, receive_one, running_bus
from wire.test_service_bus_administration import administration

pytestmark = pytest.mark.wire
CONDUIT = subscription_path("events", "conduit")
FORWARDING = NamespaceConfig(
    "east",
    (
        QueueConfig("flights", requires_session=True, duplicate_window_seconds=600.0),
        QueueConfig("aside"),
    ),
    (
        TopicConfig(
            "events",
            (
                SubscriptionConfig(QueueConfig(CONDUIT, forward_to="Flights")),
                SubscriptionConfig(QueueConfig(subscription_path("events", "kept"))),
            ),
        ),
    ),
)


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus(config=FORWARDING) as running:
        yield running


@pytest.fixture
def admin(bus: Bus) -> Iterator[ServiceBusAdministrationClient]:
    with administration(bus) as client:
        yield client


def publish(bus: Bus, *messages: ServiceBusMessage) -> None:
    with bus.client.get_topic_sender("events") as sender:
        sender.send_messages(list(messages))


def event(body: str, session: str | None = "N101", **properties: str) -> ServiceBusMessage:
    return ServiceBusMessage(body, session_id=session, **properties)  # type: ignore[arg-type]


def session_of(bus: Bus, session: str, count: int) -> list[ServiceBusReceivedMessage]:
    with bus.receiver("flights", session) as receiver:
        return receive(receiver, count)


def dead_letter_of(bus: Bus, path: str) -> tuple[str, str | None]:
    letters = ServiceBusSubQueue.DEAD_LETTER
    with bus.client.get_queue_receiver(path, sub_queue=letters, max_wait_time=60) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    return str(message), message.dead_letter_reason


def test_what_is_published_is_in_the_session_queue_with_its_session_and_in_order(bus: Bus) -> None:
    bus.send("flights", "before", session="N101")
    publish(bus, event("x", "N202"), *(event(f"{step}") for step in range(5)))
    publish(bus, event("y", "N202"), event("5"))

    found = session_of(bus, "N101", 7)
    assert [str(one) for one in found] == ["before", "0", "1", "2", "3", "4", "5"]
    assert [str(one) for one in session_of(bus, "N202", 2)] == ["x", "y"]
    # The number is the queue's own; that of the topic is told beside it.
    assert [one.sequence_number for one in found] == [1, 3, 4, 5, 6, 7, 9]
    assert [one.enqueued_sequence_number for one in found] == [None, 2, 3, 4, 5, 6, 8]
    # Another subscription has copies of its own, and the conduit nothing.
    assert bus.namespace.depth(subscription_path("events", "kept"))["active"] == 8
    assert sum(bus.namespace.depth(CONDUIT).values()) == 0
    assert bus.count("forward") == 8


def test_duplicates_are_dropped_where_they_are_forwarded_to(bus: Bus) -> None:
    publish(bus, event("first", message_id="m"), event("again", message_id="m"))

    assert bus.namespace.depth("flights")["active"] == 1


def test_a_message_without_a_session_is_a_dead_letter_of_what_forwards(bus: Bus) -> None:
    publish(bus, event("whose?", None), event("mine"))

    assert dead_letter_of(bus, CONDUIT) == ("whose?", "Session ID is null")
    assert [str(one) for one in session_of(bus, "N101", 1)] == ["mine"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault("servicebus.east", Action.DOWN, entity="flights", status=503), "server-busy"),
        (
            Fault("servicebus.east", Action.STATUS, operation="forward", status=403),
            "resource-limit-exceeded",
        ),
    ],
    ids=["disabled", "full"],
)
def test_what_the_target_cannot_take_is_a_dead_letter_and_stays_one(
    bus: Bus, fault: Fault, reason: str
) -> None:
    armed = bus.faults.arm(fault)
    publish(bus, event("lost its way"))
    bus.faults.disarm(armed)
    publish(bus, event("arrives"))

    assert [str(one) for one in session_of(bus, "N101", 1)] == ["arrives"]
    assert dead_letter_of(bus, CONDUIT) == ("lost its way", reason)
    assert bus.count("forward", reason) == 1


def test_what_is_forwarded_to_a_queue_that_was_removed_is_a_dead_letter(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    admin.delete_queue("flights")
    publish(bus, event("nowhere to go"))

    assert dead_letter_of(bus, CONDUIT) == ("nowhere to go", "not-found")


def test_a_message_is_forwarded_four_times_and_no_more(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    for name, target in zip("edcba", ["aside", *"edcb"], strict=True):
        admin.create_queue(name, forward_to=target)
    bus.send("b", "four")
    bus.send("a", "five")

    with bus.receiver("aside") as receiver:
        message = receive_one(receiver)
    assert (str(message), message.enqueued_sequence_number) == ("four", 1)
    assert dead_letter_of(bus, "e") == ("five", "MaxTransferHopCountExceeded")


def test_nothing_can_be_received_from_what_forwards(bus: Bus) -> None:
    with pytest.raises(ServiceBusError, match="auto-forwarding enabled"), bus.receiver(CONDUIT):
        pass


def test_a_client_makes_reads_and_ends_a_forward(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    bus.send("aside", "waiting")
    aside = admin.get_queue("aside")
    assert not aside.forward_to
    admin.create_queue("plain")
    aside.forward_to = "plain"
    admin.update_queue(aside)
    eventually(lambda: bus.namespace.depth("plain")["active"] == 1, seconds=60)

    changed = admin.get_queue("aside")
    assert str(changed.forward_to).endswith("/plain")
    changed.forward_to = None
    admin.update_queue(changed)
    bus.send("aside", "stays")
    with bus.receiver("aside") as receiver:
        assert str(receive_one(receiver)) == "stays"


def test_a_forward_that_cannot_be_is_refused_by_name(
    bus: Bus, admin: ServiceBusAdministrationClient
) -> None:
    refused = pytest.raises(HttpResponseError, match="names no queue or topic")
    with refused:
        admin.create_queue("new", forward_to="nobody")
    with refused:
        admin.create_queue("new", forward_to=CONDUIT)
    with pytest.raises(HttpResponseError, match="leads back"):
        admin.create_subscription("events", "circle", forward_to="events")
    with pytest.raises(HttpResponseError, match="requires sessions cannot forward"):
        admin.create_queue("new", forward_to="aside", requires_session=True)

    assert "new" not in bus.namespace.entities()


def test_what_clients_let_forward_does_so_after_a_restart(tmp_path: Path) -> None:
    with running_bus(tmp_path) as bus, administration(bus) as admin:
        admin.create_topic("events")
        admin.create_subscription("events", "conduit", forward_to="flights")
        publish(bus, event("before"))
    with running_bus(tmp_path, CONFIG) as bus:
        publish(bus, event("after"))
        assert [str(one) for one in session_of(bus, "N101", 2)] == ["before", "after"]
