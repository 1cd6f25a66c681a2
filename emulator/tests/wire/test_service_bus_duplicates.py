"""Duplicate detection: a message id is taken once in its window."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from local.testing.patience import eventually
from wire.service_bus import Bus, receive, running_bus

pytestmark = pytest.mark.wire
QUEUE = "unique"  # its window is ten minutes
FORGETFUL = "forgetful"  # its window is half a second


def send(
    bus: Bus,
    body: str,
    message_id: str,
    scheduled_for: datetime | None = None,
    *,
    queue: str = QUEUE,
) -> None:
    message = ServiceBusMessage(
        body, message_id=message_id, scheduled_enqueue_time_utc=scheduled_for
    )
    with bus.client.get_queue_sender(queue) as sender:
        sender.send_messages(message)


def drained(bus: Bus, count: int, queue: str = QUEUE) -> list[str]:
    with bus.receiver(queue) as receiver:
        messages = receive(receiver, count)
        for message in messages:
            receiver.complete_message(message)
    assert bus.namespace.depth(queue)["active"] == 0
    return [str(message) for message in messages]


def test_a_repeated_send_succeeds_and_adds_nothing() -> None:
    with running_bus() as bus:
        send(bus, "first", "m")
        send(bus, "second", "m")
        assert drained(bus, 1) == ["first"]
        send(bus, "third", "m")
        assert bus.namespace.depth(QUEUE)["active"] == 0


def test_an_id_may_be_sent_again_when_the_window_is_over() -> None:
    with running_bus() as bus:
        send(bus, "first", "m", queue=FORGETFUL)
        assert eventually(lambda: taken_again(bus))
        assert drained(bus, 2, FORGETFUL) == ["first", "again"]


def taken_again(bus: Bus) -> bool:
    send(bus, "again", "m", queue=FORGETFUL)
    return bus.namespace.depth(FORGETFUL)["active"] == 2


def test_a_scheduled_message_and_a_sent_one_are_duplicates_of_each_other() -> None:
    with running_bus() as bus:
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        send(bus, "scheduled", "a", soon)
        send(bus, "dropped", "a")
        send(bus, "sent", "b")
        send(bus, "dropped", "b", soon)

        assert drained(bus, 2) == ["sent", "scheduled"]
        assert bus.namespace.depth(QUEUE)["scheduled"] == 0


def test_a_repeated_schedule_answers_the_number_of_the_first() -> None:
    with running_bus() as bus, bus.client.get_queue_sender(QUEUE) as sender:
        soon = datetime.now(UTC) + timedelta(seconds=60)
        message = ServiceBusMessage("x", message_id="m")
        first = sender.schedule_messages(message, soon)
        assert sender.schedule_messages(message, soon) == first
        sender.cancel_scheduled_messages(first)
        assert bus.namespace.depth(QUEUE)["scheduled"] == 0


def test_what_was_sent_is_remembered_over_a_restart(tmp_path: Path) -> None:
    with running_bus(tmp_path) as bus:
        send(bus, "first", "m")
    with running_bus(tmp_path) as bus:
        send(bus, "second", "m")
        assert drained(bus, 1) == ["first"]
