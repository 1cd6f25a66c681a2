"""Scheduled messages: sent now, served later, unless they are cancelled before."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageNotFoundError

from wire.service_bus import Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
QUEUE = "parcels"


@pytest.fixture(scope="module")
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def test_a_message_annotated_with_a_time_is_not_served_before_it(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        due = datetime.now(UTC) + timedelta(seconds=1.5)
        sender.send_messages(ServiceBusMessage("later", scheduled_enqueue_time_utc=due))
        sender.send_messages(ServiceBusMessage("now"))
    assert bus.namespace.depth(QUEUE)["scheduled"] == 1

    with bus.receiver(QUEUE) as receiver:
        messages = receive(receiver, 2)
        arrived = datetime.now(UTC)
        for message in messages:
            receiver.complete_message(message)

    assert [str(message) for message in messages] == ["now", "later"]
    assert arrived >= due - timedelta(milliseconds=1)


def test_scheduled_messages_of_a_batch_each_keep_their_own_time(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        now = datetime.now(UTC)
        sender.send_messages(
            [
                ServiceBusMessage(body, scheduled_enqueue_time_utc=now + timedelta(seconds=seconds))
                for body, seconds in (("third", 1.2), ("first", 0.8), ("second", 1.0))
            ]
        )
    with bus.receiver(QUEUE) as receiver:
        messages = receive(receiver, 3)
        for message in messages:
            receiver.complete_message(message)

    assert [str(message) for message in messages] == ["first", "second", "third"]


def test_a_cancelled_message_is_never_served(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        numbers = sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], soon)
        sender.cancel_scheduled_messages(numbers[0])
        with pytest.raises(MessageNotFoundError):
            sender.cancel_scheduled_messages(numbers[0])
    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)

    assert str(message) == "b"
    assert bus.namespace.depth(QUEUE) == {
        "active": 0,
        "locked": 0,
        "scheduled": 0,
        "deferred": 0,
        "dead_lettered": 0,
    }
