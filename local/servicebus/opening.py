"""Opening: from the declaration of a namespace to entities in service."""

from uuid import uuid4

from local.servicebus.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from local.servicebus.directory import DEAD_LETTER_SUFFIX
from local.servicebus.entity import (
    Entity,
    PlainEntity,
    QueueEntity,
    Role,
    SessionEntity,
    TopicEntity,
)
from local.servicebus.gate import Gate
from local.servicebus.ledger import Ledger
from local.servicebus.plain_queue import PlainQueue
from local.servicebus.session_queue import SessionQueue
from local.servicebus.topic import Subscription, Topic


class Opening:
    """Makes entities that begin with what the ledger kept of them."""

    def __init__(self, gate: Gate, ledger: Ledger) -> None:
        self._gate = gate
        self._ledger = ledger

    def entities(self, config: NamespaceConfig) -> list[Entity]:
        """Every entity of the namespace; topics come before their subscriptions."""
        opened: list[Entity] = []
        for topic in map(self._topic, config.topics):
            opened.append(topic)
            opened += (part for one in topic.subscriptions for part in with_dead_letters(one))
        for queue in config.queues:
            opened += with_dead_letters(self._queue(queue, Role.QUEUE))
        return opened

    def _topic(self, config: TopicConfig) -> TopicEntity:
        entities = [self._subscription(one) for one in config.subscriptions]
        subscriptions = tuple(e.subscription for e in entities if e.subscription is not None)
        topic = Topic(config, subscriptions, self._ledger)
        topic.restore(self._ledger.load(topic.name))
        return TopicEntity(topic, self._gate, entities)

    def _subscription(self, config: SubscriptionConfig) -> QueueEntity:
        entity = self._queue(config.queue, Role.SUBSCRIPTION)
        entity.subscription = Subscription(entity.store, config.rules, self._ledger)
        return entity

    def _queue(self, config: QueueConfig, role: Role) -> QueueEntity:
        graveyard = self._graveyard(config)
        kept = self._ledger.load(config.name)
        if config.requires_session:
            sessions = SessionQueue(
                config, tokens=uuid4, ledger=self._ledger, dead_letters=graveyard.queue
            )
            sessions.restore(kept)
            return SessionEntity(sessions, self._gate, role, graveyard)
        plain = PlainQueue(config, tokens=uuid4, ledger=self._ledger, dead_letters=graveyard.queue)
        plain.restore(kept)
        return PlainEntity(plain, self._gate, role, graveyard)

    def _graveyard(self, config: QueueConfig) -> PlainEntity:
        queue = PlainQueue(
            QueueConfig(config.name + DEAD_LETTER_SUFFIX, lock_seconds=config.lock_seconds),
            tokens=uuid4,
            ledger=self._ledger,
            dead_letters=None,
        )
        queue.restore(self._ledger.load(queue.name))
        return PlainEntity(queue, self._gate, Role.DEAD_LETTER_QUEUE)


def with_dead_letters(entity: QueueEntity) -> list[Entity]:
    """An entity, and the one that holds its dead letters."""
    return [entity] if entity.dead_letters is None else [entity, entity.dead_letters]
