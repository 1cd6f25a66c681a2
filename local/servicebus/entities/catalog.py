"""The entities of a namespace: made from its declaration, found by the addresses of links."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from local.servicebus.config import NamespaceConfig, QueueConfig, SubscriptionConfig
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import EntityKind, MessagingEntity, Queue
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.store import MessageStore
from local.servicebus.entities.topic import Topic
from local.servicebus.protocol.errors import AmqpError, ErrorCondition
from local.servicebus.rules.rule_set import RuleSet

DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"
MANAGEMENT_SUFFIX = "/$management"
CBS = "$cbs"


class NodeKind(Enum):
    """What the node at an address is for."""

    MESSAGES = "messages"
    MANAGEMENT = "management"
    AUTHORIZATION = "authorization"


@dataclass(frozen=True, slots=True)
class AddressedNode:
    """What an address leads to; only authorization has no entity."""

    kind: NodeKind
    entity: MessagingEntity | None = None


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
        self._nodes = {CBS: AddressedNode(NodeKind.AUTHORIZATION)}
        for entity in self.entities:
            name = entity.name.lower()
            self._nodes[name] = AddressedNode(NodeKind.MESSAGES, entity)
            self._nodes[name + MANAGEMENT_SUFFIX] = AddressedNode(NodeKind.MANAGEMENT, entity)

    def find_entity(self, name: str) -> MessagingEntity:
        """Raises KeyError if there is none of that name."""
        for entity in self.entities:
            if entity.name.lower() == name.lower():
                return entity
        raise KeyError(name)

    def find_node(self, path: str) -> AddressedNode:
        """The node at a path; refused when there is none."""
        node = self._nodes.get(path.lower())
        if node is None:
            raise AmqpError(
                ErrorCondition.NOT_FOUND, f"The messaging entity {path!r} could not be found"
            )
        return node

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


def path_of(address: str | None) -> str:
    """The path in an address; a scheme and host in front do not matter."""
    _, scheme, rest = (address or "").rpartition("://")
    return rest.partition("/")[2] if scheme else rest
