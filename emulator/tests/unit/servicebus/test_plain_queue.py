"""A plain queue in virtual time."""

import pytest

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.message import Disposition, Settlement
from unit.servicebus.queues import LOCK_SECONDS, body, message, plain_queue, token


def test_an_abandoned_message_is_served_before_all_later_ones() -> None:
    queue = plain_queue()
    queue.send([message("a"), message("b"), message("c")], now=0)
    first, second = queue.receive(0), queue.receive(0)

    queue.settle(token(second), Disposition(Settlement.ABANDON), now=1)
    queue.settle(token(first), Disposition(Settlement.RELEASE), now=1)

    assert [body(queue.receive(2)) for _ in range(4)] == ["a", "b", "c", None]


def test_a_lock_runs_out_exactly_at_its_time_and_the_token_is_worth_nothing_then() -> None:
    queue = plain_queue()
    queue.send([message("a")], now=0)
    old = token(queue.receive(0))

    queue.advance(LOCK_SECONDS - 0.001)
    assert queue.receive(LOCK_SECONDS - 0.001) is None
    queue.advance(LOCK_SECONDS)

    again = queue.receive(LOCK_SECONDS)
    assert again is not None
    assert again.delivery_count == 1
    with pytest.raises(AmqpError) as refusal:
        queue.settle(old, Disposition(Settlement.COMPLETE), now=LOCK_SECONDS)
    assert refusal.value.condition is ErrorCondition.MESSAGE_LOCK_LOST


def test_a_message_that_redeliver_once_does_so_once_and_counts_no_failure() -> None:
    queue = plain_queue()
    queue.send([message("a"), message("b")], now=0)
    first = queue.receive(0)
    assert first is not None
    first.redeliver_once = True

    queue.settle(token(first), Disposition(Settlement.COMPLETE), now=1)
    again = queue.receive(1)
    queue.settle(token(again), Disposition(Settlement.COMPLETE), now=2)

    assert (body(again), again.delivery_count if again else None) == ("a", 0)
    assert body(queue.receive(2)) == "b"
    assert queue.depth()["active"] == 0


def test_a_renewed_lock_runs_out_later() -> None:
    queue = plain_queue()
    queue.send([message("a")], now=0)
    held = token(queue.receive(0))

    assert queue.renew([held], now=6) == [6 + LOCK_SECONDS]
    queue.advance(LOCK_SECONDS)

    assert queue.depth()["locked"] == 1


def test_only_failures_count_towards_the_dead_letter_queue() -> None:
    queue = plain_queue(max_delivery_count=2)
    queue.send([message("a")], now=0)

    for _ in range(5):
        queue.settle(token(queue.receive(0)), Disposition(Settlement.RELEASE), now=0)
    queue.settle(token(queue.receive(0)), Disposition(Settlement.ABANDON), now=0)
    assert queue.depth()["dead_lettered"] == 0
    queue.settle(token(queue.receive(0)), Disposition(Settlement.ABANDON), now=0)

    assert queue.depth()["dead_lettered"] == 1
    assert queue.dead_letters is not None
    (buried,) = queue.dead_letters.peek(0, 10)
    assert buried.dead_letter is not None
    assert buried.dead_letter.reason == "MaxDeliveryCountExceeded"


def test_the_shorter_time_to_live_counts_and_a_locked_message_outlives_it() -> None:
    queue = plain_queue(time_to_live_seconds=100.0, dead_letter_expired=True)
    queue.send([message("held", time_to_live_seconds=5), message("idle")], now=0)
    held = token(queue.receive(0))

    queue.advance(6)
    assert queue.depth()["locked"] == 1
    queue.settle(held, Disposition(Settlement.RELEASE), now=6)
    assert queue.depth()["dead_lettered"] == 1
    queue.advance(100)

    assert queue.depth()["dead_lettered"] == 2


def test_a_scheduled_message_enters_the_line_behind_what_was_sent_before_its_time() -> None:
    queue = plain_queue()
    (number,) = queue.send([message("scheduled", scheduled_for=5)], now=0)
    queue.send([message("sent")], now=1)
    assert [body(m) for m in queue.peek(0, 10)] == ["scheduled", "sent"]

    queue.advance(5)

    assert [body(queue.receive(5)), body(queue.receive(5))] == ["sent", "scheduled"]
    with pytest.raises(AmqpError):
        queue.cancel_scheduled([number])


def test_a_deferred_message_stays_deferred_when_it_is_abandoned() -> None:
    queue = plain_queue()
    (number,) = queue.send([message("a")], now=0)
    queue.settle(token(queue.receive(0)), Disposition(Settlement.DEFER), now=0)

    (held,) = queue.receive_deferred([number], now=1)
    queue.settle(token(held), Disposition(Settlement.ABANDON), now=1)

    assert queue.receive(2) is None
    assert queue.depth()["deferred"] == 1


def test_what_is_settled_leaves_no_alarms_behind() -> None:
    queue = plain_queue(time_to_live_seconds=1e6)
    for number in range(2000):
        queue.send([message(str(number))], now=number)
        queue.settle(token(queue.receive(number)), Disposition(Settlement.COMPLETE), now=number)

    assert len(queue.timers._heap) < 200
    assert len(queue.index._order) < 200
