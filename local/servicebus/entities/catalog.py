"""The entities of a namespace, made from its declaration and found by name."""

from collections.abc import Callable, Iterator

from local.servicebus.config import NamespaceConfig, QueueConfig, SubscriptionConfig
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import EntityKind, MessagingEntity, Queue
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.store import MessageStore
from local.servicebus.entities.topic import Topic
from local.servicebus.rules.rule_set import RuleSet

DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"


class EntityCatalog:
    """Every entity of a namespace, with what the store has of it; names ignore case."""

    def __init__(
        self,
        config: NamespaceConfig,
        store: MessageStore,
        count_expired_lock: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._count_expired_lock = count_expired_lock
        self.entities = list(self._open_entities(config))
        self._by_name = {entity.name.lower(): entity for entity in self.entities}

    def find(self, name: str) -> MessagingEntity:
        """Raises KeyError if there is none of that name."""
        return self._by_name[name.lower()]

    def _open_entities(self, config: NamespaceConfig) -> Iterator[MessagingEntity]:
        for topic_config in config.topics:
            subscriptions = [self._open_queue(one) for one in topic_config.subscriptions]
            topic = Topic(topic_config, subscriptions, self._store)
            topic.restore(self._store.load(topic.name))
            yield topic  # before its subscriptions: its timers run first
            for queue in subscriptions:
                yield from with_dead_letters(queue)
        for queue_config in config.queues:
            yield from with_dead_letters(self._open_queue(queue_config))

    def _open_queue(self, declared: QueueConfig | SubscriptionConfig) -> Queue:
        is_subscription = isinstance(declared, SubscriptionConfig)
        config = declared.queue if isinstance(declared, SubscriptionConfig) else declared
        dead_letters = PlainQueue(
            QueueConfig(config.name + DEAD_LETTER_SUFFIX, lock_seconds=config.lock_seconds),
            kind=EntityKind.DEAD_LETTER_QUEUE,
            store=self._store,
            count_expired_lock=self._count_expired_lock,
        )
        rules = None
        if isinstance(declared, SubscriptionConfig):
            rules = RuleSet(config.name, declared.rules, self._store)
        queue = (SessionQueue if config.requires_session else PlainQueue)(
            config,
            kind=EntityKind.SUBSCRIPTION if is_subscription else EntityKind.QUEUE,
            store=self._store,
            dead_letters=dead_letters,
            rules=rules,
            count_expired_lock=self._count_expired_lock,
        )
        for opened in (dead_letters, queue):
            opened.restore(self._store.load(opened.name))
        return queue


def with_dead_letters(queue: Queue) -> list[Queue]:
    """A queue, and the one that holds its dead letters."""
    return [queue] if queue.dead_letters is None else [queue, queue.dead_letters]
