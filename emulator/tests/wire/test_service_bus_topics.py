"""Topics: every subscription gets its own copy of what its rules match."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from local.servicebus.config import subscription_path
from wire.service_bus import Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
TOPIC = "news"


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def publish(bus: Bus, *messages: ServiceBusMessage) -> None:
    with bus.client.get_topic_sender(TOPIC) as sender:
        sender.send_messages(list(messages))


def subscribed(bus: Bus, name: str, session: Any = None, **options: Any) -> ServiceBusReceiver:
    return bus.client.get_subscription_receiver(
        TOPIC, name, session_id=session, max_wait_time=60, **options
    )


def drain(receiver: ServiceBusReceiver, count: int) -> list[str]:
    messages = receive(receiver, count)
    for message in messages:
        receiver.complete_message(message)
    return [str(message) for message in messages]


def active(bus: Bus, name: str) -> int:
    return bus.namespace.depth(subscription_path(TOPIC, name))["active"]


def test_a_correlation_filter_takes_what_equals_it_in_all_it_names(bus: Bus) -> None:
    publish(
        bus,
        ServiceBusMessage("a", subject="departed", application_properties={"late": True}),
        ServiceBusMessage("b", subject="departed", application_properties={"late": False}),
        ServiceBusMessage("c", subject="arrived", application_properties={"late": True}),
        ServiceBusMessage("d", subject="departed"),
    )

    with subscribed(bus, "everything") as receiver:
        assert drain(receiver, 4) == ["a", "b", "c", "d"]
    assert active(bus, "departures") == 1
    with subscribed(bus, "departures") as receiver:
        assert drain(receiver, 1) == ["a"]


def test_a_copy_tells_the_number_of_its_message_in_the_topic_after_a_restart_and_as_dead_letter(
    tmp_path: Path,
) -> None:
    departed = ServiceBusMessage("b", subject="departed", application_properties={"late": True})
    with running_bus(tmp_path) as bus:
        publish(bus, ServiceBusMessage("a"), departed)
        with subscribed(bus, "everything") as receiver:
            receiver.dead_letter_message(receive_one(receiver))
    numbers = {}
    with running_bus(tmp_path) as bus:
        for name, sub_queue in (
            ("everything", None),
            ("everything", ServiceBusSubQueue.DEAD_LETTER),
            ("departures", None),
        ):
            with subscribed(bus, name, sub_queue=sub_queue) as receiver:
                message = receive_one(receiver)
            own, first = message.sequence_number, message.enqueued_sequence_number
            numbers[name, sub_queue is None] = (str(message), own, first)
        # Sent on by who received it, it is a new message; in a queue there is no such number.
        forwarded = ServiceBusMessage(b"".join(message.body))
        forwarded.raw_amqp_message.annotations = message.raw_amqp_message.annotations
        with bus.client.get_queue_sender("parcels") as sender:
            sender.send_messages(forwarded)
        with bus.receiver("parcels") as receiver:
            assert receive_one(receiver).enqueued_sequence_number is None

    assert numbers == {
        ("everything", True): ("b", 2, 2),
        ("everything", False): ("a", 1, 1),
        ("departures", True): ("b", 1, 2),
    }


def test_copies_are_settled_apart(bus: Bus) -> None:
    departed = ServiceBusMessage(
        "N101", subject="departed", session_id="N101", application_properties={"late": True}
    )
    publish(bus, departed)

    with subscribed(bus, "everything") as receiver:
        receiver.dead_letter_message(receive_one(receiver), reason="unreadable")
    with subscribed(bus, "by-flight", NEXT_AVAILABLE_SESSION) as receiver:
        assert receiver.session.session_id == "N101"
        receiver.session.set_state(b"gate 7")
        receiver.abandon_message(receive_one(receiver))
        again = receive_one(receiver)
        receiver.complete_message(again)
        assert again.delivery_count == 1
    with subscribed(bus, "everything", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert (str(message), message.dead_letter_reason) == ("N101", "unreadable")
    assert active(bus, "departures") == 1


def test_what_lacks_a_session_is_a_dead_letter_of_the_subscription_with_sessions(bus: Bus) -> None:
    publish(bus, ServiceBusMessage("whose?"))

    with subscribed(bus, "by-flight", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    assert (str(message), message.dead_letter_reason) == ("whose?", "Session ID is null")
    assert active(bus, "everything") == 1


def test_a_message_scheduled_on_a_topic_arrives_when_it_is_due(bus: Bus) -> None:
    with bus.client.get_topic_sender(TOPIC) as sender:
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        kept, cancelled = sender.schedule_messages(
            [ServiceBusMessage("kept"), ServiceBusMessage("cancelled")], soon
        )
        assert bus.namespace.depth(TOPIC)["scheduled"] == 2
        sender.cancel_scheduled_messages(cancelled)

    assert kept != cancelled
    with subscribed(bus, "everything") as receiver:
        assert drain(receiver, 1) == ["kept"]
    assert active(bus, "everything") == 0


def test_rules_are_listed_added_and_removed_while_it_runs(bus: Bus) -> None:
    with subscribed(bus, "departures") as receiver:
        added = {
            "rule-name": "gate",
            "rule-description": {"correlation-filter": {"properties": {"gate": 7}}},
        }
        assert manage(receiver, "add-rule", added)[0] == 200
        assert manage(receiver, "add-rule", added)[0] == 409
        _, body = manage(receiver, "enumerate-rules", {"skip": 0, "top": 10})
        names = [rule[b"rule-description"][2] for rule in body[b"rules"]]
        assert names == [b"departed", b"gate"]
        assert manage(receiver, "remove-rule", {"rule-name": "departed"})[0] == 200
        assert manage(receiver, "remove-rule", {"rule-name": "departed"})[0] == 404

    publish(
        bus,
        ServiceBusMessage("no more", subject="departed", application_properties={"late": True}),
        ServiceBusMessage("new", application_properties={"gate": 7}),
    )
    with subscribed(bus, "departures") as receiver:
        assert drain(receiver, 1) == ["new"]
    assert active(bus, "departures") == 0


def test_rules_are_there_again_after_a_restart_as_clients_left_them(tmp_path: Path) -> None:
    gate = {"correlation-filter": {"label": "departed", "properties": {"gate": 7, "late": False}}}
    with running_bus(tmp_path) as bus:
        with subscribed(bus, "departures") as receiver:
            added = {"rule-name": "gate", "rule-description": gate}
            assert manage(receiver, "add-rule", added)[0] == 200
            assert manage(receiver, "remove-rule", {"rule-name": "departed"})[0] == 200
        with subscribed(bus, "everything") as receiver:
            assert manage(receiver, "remove-rule", {"rule-name": "$Default"})[0] == 200

    with running_bus(tmp_path) as bus:
        for late in (False, True):
            properties: Any = {"gate": 7, "late": late}
            body = "late" if late else "on time"
            publish(
                bus,
                ServiceBusMessage(body, subject="departed", application_properties=properties),
            )
        with subscribed(bus, "departures") as receiver:
            assert drain(receiver, 1) == ["on time"]
        assert (active(bus, "departures"), active(bus, "everything")) == (0, 0)


@pytest.mark.parametrize(
    ("description", "named"),
    [
        ({"sql-filter": {"expression": "gate > 7"}}, "gate > 7"),
        (
            {
                "sql-filter": {"expression": "1=1"},
                "sql-rule-action": {"expression": "SET a = 1"},
            },
            "rule actions",
        ),
    ],
)
def test_a_rule_in_sql_is_refused_by_name(
    bus: Bus, description: dict[str, Any], named: str
) -> None:
    with subscribed(bus, "departures") as receiver:
        status, reason = manage(
            receiver, "add-rule", {"rule-name": "sql", "rule-description": description}
        )

    assert status == 501
    assert named in reason


def test_a_topic_cannot_be_received_from_nor_a_subscription_sent_to(bus: Bus) -> None:
    with pytest.raises(ServiceBusError, match="its subscriptions"), bus.receiver(TOPIC):
        pass
    with (
        pytest.raises(ServiceBusError, match="sent to a subscription"),
        bus.client.get_queue_sender(subscription_path(TOPIC, "everything")),
    ):
        pass


def test_an_unknown_subscription_is_not_found(bus: Bus) -> None:
    with (
        pytest.raises(ServiceBusAuthenticationError),
        subscribed(bus, "nobody"),
    ):
        pass


def manage(receiver: ServiceBusReceiver, operation: str, body: dict[str, Any]) -> tuple[int, Any]:
    """A request that the Python SDK has no method for; the answer is a status and a body."""

    def answered(status: int, message: Any, description: bytes, **_: object) -> tuple[int, Any]:
        return status, message.value if status == 200 else description.decode()

    name = f"com.microsoft:{operation}".encode()
    answer: Any = receiver._mgmt_request_response(name, body, answered, timeout=60)
    return answer[0], answer[1]
