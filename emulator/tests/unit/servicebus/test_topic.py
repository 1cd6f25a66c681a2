"""A topic in virtual time."""

from dataclasses import replace

from proton import Message as AmqpMessage

from local.servicebus.amqp.message_format import read_message
from local.servicebus.config import TopicConfig
from local.servicebus.entities.queue import Queue
from local.servicebus.entities.store import MessageStore
from local.servicebus.entities.topic import Topic
from local.servicebus.message import BrokeredMessage
from local.servicebus.rules import (
    MATCH_ALL,
    CorrelationFilter,
    SubscriptionRule,
    SystemProperty,
)
from unit.servicebus.queues import plain_queue, session_queue


def sent(body: str, **properties: object) -> BrokeredMessage:
    encoded = AmqpMessage(body=body, **properties)
    return read_message(encoded.encode())


def equal_to(**application: object) -> tuple[SubscriptionRule, ...]:
    return (SubscriptionRule("r", CorrelationFilter({}, application)),)


def topic(*subscriptions: Queue, **limits: float) -> Topic:
    return Topic(TopicConfig("news", (), **limits), subscriptions, MessageStore())


def bodies(queue: Queue) -> list[object]:
    found: list[object] = []
    for stored in queue.peek(0, 100):
        decoded = AmqpMessage()
        decoded.decode(stored.message.encoded)
        found.append(decoded.body)
    return found


def test_every_subscription_gets_what_its_rules_match_and_gets_it_once() -> None:
    two_rules = (
        SubscriptionRule("gate", CorrelationFilter({}, {"gate": 7})),
        SubscriptionRule("label", CorrelationFilter({SystemProperty.LABEL: "departed"})),
    )
    everything = plain_queue(rules=MATCH_ALL)
    gates = plain_queue(rules=equal_to(gate=7, late=True))
    both = plain_queue(rules=two_rules)
    news = topic(everything, gates, both)

    news.send(
        [
            sent("a", subject="departed", properties={"gate": 7, "late": True}),
            sent("b", properties={"gate": 7}),
            sent("c", properties={"gate": 8, "late": True}),
            sent("d"),
        ],
        now=0,
    )

    assert bodies(everything) == ["a", "b", "c", "d"]
    assert bodies(gates) == ["a"]
    assert bodies(both) == ["a", "b"]


def test_a_scheduled_message_meets_the_rules_of_the_time_at_which_it_is_due() -> None:
    queue = plain_queue(rules=equal_to(gate=7))
    news = topic(queue)
    (number,) = news.send([replace(sent("later"), scheduled_for=5)], now=0)
    assert [m.sequence_number for m in news.peek(0, 9)] == [number]

    assert queue.rules is not None
    queue.rules.remove("R")
    queue.rules.add(MATCH_ALL[0])
    news.advance(5)

    assert news.depth()["scheduled"] == 0
    assert queue.depth()["active"] == 1


def test_a_message_without_a_session_is_a_dead_letter_where_sessions_are_required() -> None:
    sessions, plain = session_queue(rules=MATCH_ALL), plain_queue(rules=MATCH_ALL)
    news = topic(sessions, plain)

    news.send([sent("whose?")], now=0)

    assert sessions.depth()["active"] == 0
    assert plain.depth()["active"] == 1
    assert sessions.dead_letters is not None
    (buried,) = sessions.dead_letters.peek(0, 9)
    assert buried.dead_letter is not None
    assert buried.dead_letter.reason == "Session ID is null"


def test_the_topic_s_time_to_live_is_a_limit_for_its_subscriptions() -> None:
    queue = plain_queue(rules=MATCH_ALL, time_to_live_seconds=100.0)
    news = topic(queue, time_to_live_seconds=5)

    news.send([sent("short"), replace(sent("shorter"), time_to_live_seconds=2)], now=0)

    assert [stored.expires_at for stored in queue.peek(0, 9)] == [5, 2]


def test_duplicates_are_dropped_before_they_reach_a_subscription() -> None:
    queue = plain_queue(rules=MATCH_ALL)
    news = topic(queue, duplicate_window_seconds=60)

    numbers = news.send([sent("x", id="m"), sent("y", id="m")], now=0)

    assert numbers[0] == numbers[1]
    assert queue.depth()["active"] == 1
