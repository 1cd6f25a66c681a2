"""Duplicate detection in virtual time."""

from local.servicebus.entities.indexes import DuplicateDetection, SentMessageId
from local.servicebus.message import BrokeredMessage, Disposition, Settlement
from unit.servicebus.queues import body, plain_queue, token

WINDOW = 60.0


def named(text: str, message_id: str | None, scheduled_for: float | None = None) -> BrokeredMessage:
    return BrokeredMessage(text.encode(), scheduled_for=scheduled_for, message_id=message_id)


def test_an_id_is_taken_once_in_its_window_even_when_the_first_is_long_completed() -> None:
    queue = plain_queue(duplicate_window_seconds=WINDOW)
    (first,) = queue.send([named("one", "m")], now=0)
    queue.settle(token(queue.receive(0)), Disposition(Settlement.COMPLETE), now=1)

    (second,) = queue.send([named("two", "m")], now=WINDOW - 0.001)
    assert second == first
    assert queue.receive(WINDOW - 0.001) is None
    queue.advance(WINDOW)
    queue.send([named("three", "m")], now=WINDOW)

    assert body(queue.receive(WINDOW)) == "three"


def test_a_message_without_an_id_is_never_a_duplicate() -> None:
    queue = plain_queue(duplicate_window_seconds=WINDOW)

    queue.send([named("one", None), named("two", None)], now=0)

    assert queue.depth()["active"] == 2


def test_a_scheduled_message_counts_from_the_moment_it_was_sent() -> None:
    queue = plain_queue(duplicate_window_seconds=WINDOW)
    queue.send([named("scheduled", "a", scheduled_for=30)], now=0)
    queue.send([named("sent", "b")], now=0)

    queue.send([named("again", "a")], now=1)
    queue.send([named("again", "b", scheduled_for=30)], now=1)
    queue.advance(30)

    assert [body(queue.receive(30)) for _ in range(3)] == ["sent", "scheduled", None]


def test_what_is_outside_the_window_is_forgotten_and_takes_no_memory() -> None:
    duplicates = DuplicateDetection(WINDOW)
    for number in range(1000):
        duplicates.add(str(number), number, float(number))

    forgotten = duplicates.remove_expired(1000)

    assert forgotten == [str(number) for number in range(941)]
    assert duplicates.find("940", 1000) is None
    assert duplicates.find("941", 1000) == SentMessageId("941", 941.0, 941)
