"""Queues without sessions: competing receivers, batches, times to live, peeking and prefetching."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageAlreadySettled, MessageSizeExceededError

from local.testing.patience import eventually
from wire.service_bus import Bus, receive, receive_one, running_bus

pytestmark = pytest.mark.wire
QUEUE = "parcels"


@pytest.fixture
def bus() -> Iterator[Bus]:
    with running_bus() as running:
        yield running


def test_an_abandoned_message_is_served_again_before_all_later_ones(bus: Bus) -> None:
    bus.send(QUEUE, "a", "b", "c")
    with bus.receiver(QUEUE) as receiver:
        receiver.abandon_message(receive_one(receiver))
        again = receive(receiver, 3)
        for message in again:
            receiver.complete_message(message)

    assert [(str(message), message.delivery_count) for message in again] == [
        ("a", 1),
        ("b", 0),
        ("c", 0),
    ]


def test_each_message_goes_to_one_of_those_who_compete_for_it(bus: Bus) -> None:
    bodies = [str(number) for number in range(6)]
    with bus.receiver(QUEUE) as one, bus.receiver(QUEUE) as other:
        bus.send(QUEUE, *bodies)
        taken = [(receiver, receive_one(receiver)) for receiver in (one, other) * 3]
        for receiver, message in taken:
            receiver.complete_message(message)

    assert sorted(str(message) for _, message in taken) == bodies
    assert set(bus.namespace.depth(QUEUE).values()) == {0}


def test_who_waits_at_an_empty_queue_gets_nothing_and_no_error(bus: Bus) -> None:
    with bus.receiver(QUEUE, wait=0.2) as receiver:
        assert receiver.receive_messages() == []


def test_prefetched_messages_go_back_when_the_receiver_closes_and_nothing_counts(bus: Bus) -> None:
    bus.send(QUEUE, "a", "b", "c")
    with bus.client.get_queue_receiver(QUEUE, prefetch_count=3, max_wait_time=60) as receiver:
        receiver.complete_message(receive_one(receiver))
        assert eventually(lambda: bus.namespace.depth(QUEUE)["locked"] == 2)

    with bus.receiver(QUEUE) as receiver:
        again = receive(receiver, 2)
        for message in again:
            receiver.complete_message(message)
    assert [(str(message), message.delivery_count) for message in again] == [("b", 0), ("c", 0)]


def test_a_message_is_settled_once(bus: Bus) -> None:
    bus.send(QUEUE, "a")
    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
        with pytest.raises(MessageAlreadySettled):
            receiver.abandon_message(message)

    assert bus.count("abandon") == 0


def test_a_message_lives_as_long_as_it_says_and_then_is_gone(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        sender.send_messages(ServiceBusMessage("brief", time_to_live=timedelta(seconds=0.2)))
        sender.send_messages(ServiceBusMessage("lasting", time_to_live=timedelta(hours=1)))
    assert eventually(lambda: bus.namespace.depth(QUEUE)["active"] == 1)

    with bus.receiver(QUEUE) as receiver:
        message = receive_one(receiver)
        receiver.complete_message(message)
    assert str(message) == "lasting"
    assert message.time_to_live == timedelta(hours=1)
    assert bus.namespace.depth(QUEUE)["dead_lettered"] == 0


def test_a_locked_message_may_be_settled_after_its_time_to_live(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender, bus.receiver(QUEUE) as receiver:
        sender.send_messages(ServiceBusMessage("brief", time_to_live=timedelta(seconds=2)))
        message = receive_one(receiver)
        expires_at = message.expires_at_utc
        assert expires_at is not None
        assert eventually(lambda: datetime.now(UTC) > expires_at + timedelta(seconds=0.1))
        assert bus.namespace.depth(QUEUE)["locked"] == 1
        receiver.dead_letter_message(message, reason="too slow")

    assert bus.namespace.depth(QUEUE)["dead_lettered"] == 1


def test_a_batch_is_full_at_the_size_limit_and_arrives_whole(bus: Bus) -> None:
    with bus.client.get_queue_sender(QUEUE) as sender:
        batch = sender.create_message_batch()
        for _ in range(10):
            batch.add_message(ServiceBusMessage(b"x" * 100_000))
        with pytest.raises(MessageSizeExceededError):
            batch.add_message(ServiceBusMessage(b"x" * 100_000))
        sender.send_messages(batch)

    assert batch.max_size_in_bytes < 1024 * 1024
    assert bus.namespace.depth(QUEUE)["active"] == len(batch) == 10


def test_peeking_shows_messages_in_every_state_in_the_order_of_their_numbers(bus: Bus) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    bus.send(QUEUE, "deferred", "locked", "active")
    with bus.client.get_queue_sender(QUEUE) as sender, bus.receiver(QUEUE) as receiver:
        sender.schedule_messages(ServiceBusMessage("scheduled"), tomorrow)
        receiver.defer_message(receive_one(receiver))
        locked = receive_one(receiver)
        peeked = receiver.peek_messages(10, sequence_number=1)
        receiver.complete_message(locked)

    assert [(str(message), message.state) for message in peeked] == [
        ("deferred", ServiceBusMessageState.DEFERRED),
        ("locked", ServiceBusMessageState.ACTIVE),
        ("active", ServiceBusMessageState.ACTIVE),
        ("scheduled", ServiceBusMessageState.SCHEDULED),
    ]


def test_a_message_scheduled_for_a_session_arrives_there_behind_what_was_sent_before_it_was_due(
    bus: Bus,
) -> None:
    with bus.client.get_queue_sender("flights") as sender:
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        (number,) = sender.schedule_messages(ServiceBusMessage("later", session_id="N101"), soon)
        sender.send_messages(ServiceBusMessage("now", session_id="N101"))
    with bus.receiver("flights", "N101") as receiver:
        messages = receive(receiver, 2)
        for message in messages:
            receiver.complete_message(message)

    assert [str(message) for message in messages] == ["now", "later"]
    assert (messages[1].sequence_number or 0) > (messages[0].sequence_number or 0) > number
