"""The entities of a namespace, made from its declaration and found by name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from local.servicebus.config import NamespaceConfig, QueueConfig, SubscriptionConfig
from local.servicebus.entities.entity import EntityKind, MessagingEntity
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import Queue, QueueOptions
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.store import MessageStore
from local.servicebus.entities.topic import Topic
from local.servicebus.protocol.errors import AmqpError, ErrorCondition
from local.servicebus.rules import RuleSet

DEAD_LETTER_SUFFIX, MANAGEMENT_SUFFIX = "/$DeadLetterQueue", "/$management"


class EntityCatalog:
    """Every entity of a namespace, with what the store has of it; names ignore case."""

    def __init__(
        self, config: NamespaceConfig, store: MessageStore, count_expired_lock: Callable[[], None]
    ) -> None:
        self._store = store
        self._count_expired_lock = count_expired_lock
        self.entities: list[MessagingEntity] = []
        for queue in config.queues:
            self._open_queue(queue, EntityKind.QUEUE)
        for declared in config.topics:
            subscriptions = [self._open_subscription(one) for one in declared.subscriptions]
            topic = Topic(declared, subscriptions, store)
            topic.restore(store.load(topic.name))
            self.entities.append(topic)
        self._by_name = {entity.name.lower(): entity for entity in self.entities}

    def find(self, name: str) -> MessagingEntity:
        """Raises KeyError if there is none of that name."""
        return self._by_name[name.lower()]

    def find_node(self, path: str) -> tuple[MessagingEntity, bool]:
        """The entity at a path, and whether the path is that of its management node.

        Raises AmqpError if there is none.
        """
        name = path.lower().removesuffix(MANAGEMENT_SUFFIX)
        if name not in self._by_name:
            description = f"The messaging entity {path!r} could not be found"
            raise AmqpError(ErrorCondition.NOT_FOUND, description)
        return self._by_name[name], len(name) < len(path)

    def _open_subscription(self, config: SubscriptionConfig) -> Queue:
        name, stored = config.queue.name, self._store.load_rules(config.queue.name)
        current = config.rules if stored is None else stored
        rules = RuleSet(current, partial(self._store.save_rules, name))
        return self._open_queue(config.queue, EntityKind.SUBSCRIPTION, rules)

    def _open_queue(
        self, config: QueueConfig, kind: EntityKind, rules: RuleSet | None = None
    ) -> Queue:
        options = QueueOptions(self._store, count_expired_lock=self._count_expired_lock)
        dead_letters = PlainQueue(
            QueueConfig(config.name + DEAD_LETTER_SUFFIX, lock_seconds=config.lock_seconds),
            replace(options, kind=EntityKind.DEAD_LETTER_QUEUE),
        )
        queue_class = SessionQueue if config.requires_session else PlainQueue
        options = replace(options, kind=kind, dead_letters=dead_letters, rules=rules)
        queue = queue_class(config, options)
        for opened in (queue, dead_letters):
            opened.restore(self._store.load(opened.name))
            self.entities.append(opened)
        return queue
