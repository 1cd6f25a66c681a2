"""A session queue in virtual time."""

import random
from uuid import UUID

import pytest

from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.store import SessionState
from local.servicebus.message import Disposition, Settlement
from unit.servicebus.queues import (
    LOCK_SECONDS,
    Consumer,
    body,
    message,
    session_queue,
    token,
)


def test_the_session_that_has_waited_longest_is_accepted_first() -> None:
    queue = session_queue()
    for session_id in ("b", "a", "c"):
        queue.send([message("x", session_id)], now=0)

    accepted = [queue.accept_next(Consumer(), 0) for _ in range(4)]

    assert [session and session.id for session in accepted] == ["b", "a", "c", None]


def test_letting_go_counts_nothing_and_expiry_counts_only_what_was_handed_out() -> None:
    queue = session_queue()
    first, second = Consumer(), Consumer()
    queue.send([message("one", "s"), message("two", "s")], now=0)
    queue.accept("s", first, 0)
    queue.receive("s", first)
    queue.release("s", first, 1)

    queue.accept("s", second, 2)
    queue.receive("s", second)
    queue.advance(2 + LOCK_SECONDS)

    assert (first.losses, second.losses) == (0, 1)
    assert [(body(m), m.delivery_count) for m in queue.peek(0, 9, "s")] == [("one", 1), ("two", 0)]
    assert queue.accept_next(Consumer(), 20) is not None


def test_an_old_holder_can_do_nothing_to_its_successor() -> None:
    queue, old, new = session_queue(), Consumer(), Consumer()
    queue.send([message("one", "s")], now=0)
    queue.accept("s", old, 0)
    stale = token(queue.receive("s", old))
    queue.advance(LOCK_SECONDS)
    queue.accept("s", new, LOCK_SECONDS)

    for attempt in (
        lambda: queue.settle(stale, Disposition(Settlement.COMPLETE), LOCK_SECONDS),
        lambda: queue.renew("s", old, LOCK_SECONDS),
        lambda: queue.receive("s", old),
        lambda: queue.set_state("s", old, SessionState(b"mine", LOCK_SECONDS)),
    ):
        with pytest.raises(AmqpError) as refusal:
            attempt()
        assert refusal.value.condition is ErrorCondition.SESSION_LOCK_LOST
    queue.release("s", old, LOCK_SECONDS)

    assert queue.holder_of("s") is new


def test_a_lock_lost_before_its_time_is_like_one_that_ran_out() -> None:
    expired: list[str] = []
    queue = session_queue(count_expired_lock=lambda: expired.append("lock"))
    holder, successor = Consumer(), Consumer()
    queue.send([message("one", "s"), message("two", "s")], now=0)
    queue.accept("s", holder, 0)
    held = token(queue.receive("s", holder))

    with queue.dispatching(1):
        queue.expire_lock(held, 1)
        queue.expire_lock(held, 1)

    assert holder.losses == 1
    assert expired == ["lock"]
    assert [m.delivery_count for m in queue.peek(0, 9, "s")] == [1, 0]
    queue.accept("s", successor, 1)
    assert body(queue.receive("s", successor)) == "one"


def test_only_sessions_with_messages_or_a_state_are_listed() -> None:
    queue, holder = session_queue(), Consumer()
    queue.accept("empty", Consumer(), 0)
    queue.send([message("x", "b"), message("x", "a"), message("y", "b")], now=0)
    for session_id, time in (("early", 3.0), ("late", 5.0)):
        queue.accept(session_id, holder, time)
        queue.set_state(session_id, holder, SessionState(b"mine", time))
        queue.release(session_id, holder, time)

    assert queue.session_ids() == ["b", "a", "early", "late"]
    assert [queue.session_ids(time) for time in (2, 3, 5)] == [["early", "late"], ["late"], []]


def test_a_session_without_messages_state_or_holder_is_forgotten() -> None:
    queue, holder = session_queue(), Consumer()
    for number in range(1000):
        session_id = f"s{number}"
        queue.send([message("x", session_id)], now=0)
        queue.accept(session_id, holder, 0)
        queue.settle(token(queue.receive(session_id, holder)), Disposition(Settlement.COMPLETE), 0)
        queue.release(session_id, holder, 0)

    assert len(queue._sessions) == 0


@pytest.mark.parametrize("seed", range(20))
def test_whatever_happens_each_session_is_completed_in_the_order_sent(seed: int) -> None:
    chance = random.Random(seed)
    queue = session_queue(max_delivery_count=10_000)
    sent: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    completed: dict[str, list[str]] = {"a": [], "b": [], "c": []}
    now = 0.0
    while now < 300 or queue.depth()["active"] + queue.depth()["locked"] > 0:
        now += chance.choice((0.01, 0.5, 3.0, LOCK_SECONDS / 2))
        queue.advance(now)
        if now < 300 and chance.random() < 0.5:
            session_id = chance.choice("abc")
            sent[session_id].append(f"{session_id}{len(sent[session_id])}")
            queue.send([message(sent[session_id][-1], session_id)], now)
        work_a_little(queue, completed, now, chance)

    assert completed == sent
    assert queue.depth()["dead_lettered"] == 0


def work_a_little(
    queue: SessionQueue, completed: dict[str, list[str]], now: float, chance: random.Random
) -> None:
    """One receiver takes a session, handles some messages in order, and may stop anywhere."""
    holder = Consumer()
    session = queue.accept_next(holder, now)
    if session is None:
        return
    handled: list[tuple[UUID, str]] = []
    while chance.random() < 0.8 and (stored := queue.receive(session.id, holder)) is not None:
        handled.append((token(stored), body(stored) or ""))
    for held, text in handled:
        settlement = chance.choice(list(Settlement)[:2])
        queue.settle(held, Disposition(settlement), now)
        if settlement is Settlement.ABANDON:
            break
        completed[session.id].append(text)
    if chance.random() < 0.7:
        queue.release(session.id, holder, now)
