"""The entities of a namespace, made from its declaration or by clients, and found by name."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from local.faults import lies_below
from local.servicebus.amqp.errors import AmqpError, ErrorCondition
from local.servicebus.config import (
    NamespaceConfig,
    QueueConfig,
    SubscriptionConfig,
    TopicConfig,
    refuse_forward,
)
from local.servicebus.entities.entity import EntityKind, MessagingEntity
from local.servicebus.entities.plain_queue import PlainQueue
from local.servicebus.entities.queue import NO_SESSION, Queue, QueueOptions
from local.servicebus.entities.session_queue import SessionQueue
from local.servicebus.entities.store import EntityConfig, MessageStore
from local.servicebus.entities.topic import Topic
from local.servicebus.message import BrokeredMessage, DeadLetterReason
from local.servicebus.rules import RuleSet

DEAD_LETTER_SUFFIX, MANAGEMENT_SUFFIX = "/$DeadLetterQueue", "/$management"
TRANSFER_DEAD_LETTER_SUFFIX = f"/$Transfer{DEAD_LETTER_SUFFIX}"  # as SDKs ask for it
# https://learn.microsoft.com/azure/service-bus-messaging/service-bus-auto-forwarding
HOPS_MAX = 4
TOO_MANY_HOPS = DeadLetterReason(
    "MaxTransferHopCountExceeded",
    f"The message was forwarded {HOPS_MAX} times, and goes no further.",
)


class EntityCatalog:
    """Every entity of a namespace, with what the store has of it; names ignore case.

    What clients put or removed is kept, and counts for more than the namespace's declaration.
    """

    def __init__(
        self,
        config: NamespaceConfig,
        store: MessageStore,
        *,
        count_expired_lock: Callable[[], None],
        admit_forwarded: Callable[[str], None],
    ) -> None:
        """`admit_forwarded` raises AmqpError if an entity takes no forwarded message now."""
        self._store = store
        self._count_expired_lock = count_expired_lock
        self._admit_forwarded = admit_forwarded
        self._by_name: dict[str, MessagingEntity] = {}
        declared: dict[str, EntityConfig | None] = {one.name.lower(): one for one in config.queues}
        for topic in config.topics:
            declared[topic.name.lower()] = replace(topic, subscriptions=())
            declared |= {one.queue.name.lower(): one for one in topic.subscriptions}
        for one in (declared | store.load_declarations()).values():
            match one:
                case QueueConfig():
                    self._open_queue(one, EntityKind.QUEUE)
                case TopicConfig():
                    self._open_topic(one)
        for one in (declared | store.load_declarations()).values():
            if isinstance(one, SubscriptionConfig):
                owner = self._by_name.get(one.topic.lower())
                if isinstance(owner, Topic):
                    self._open_subscription(owner, one)

    @property
    def entities(self) -> list[MessagingEntity]:
        return list(self._by_name.values())

    def find(self, name: str) -> MessagingEntity:
        """Return the entity of this name; raises KeyError if there is none."""
        return self._by_name[name.lower()]

    def find_node(self, path: str) -> tuple[MessagingEntity, bool]:
        """The entity at a path, and whether the path is that of its management node.

        Raises AmqpError if there is none.
        """
        name = path.lower().removesuffix(MANAGEMENT_SUFFIX)
        if name not in self._by_name:
            description = f"The messaging entity {path!r} could not be found"
            if name.endswith(TRANSFER_DEAD_LETTER_SUFFIX.lower()):
                description += ": nothing is sent by way of another entity here"
            raise AmqpError(ErrorCondition.NOT_FOUND, description)
        return self._by_name[name], len(name) < len(path)

    def put(self, config: EntityConfig, *, update: bool) -> None:
        """Make an entity, or go by another declaration of one; refused with AmqpError.

        An update leaves rules as they are. A queue or topic with the other's name is refused.
        """
        name = name_of(config)
        self._refuse_forward(config)
        found = self._by_name.get(name.lower())
        if found is not None and not update:
            description = f"There is an entity {name!r} already"
            raise AmqpError(ErrorCondition.ENTITY_ALREADY_EXISTS, description)
        if update:
            self._update(found, config)
        elif isinstance(config, TopicConfig):
            self._open_topic(config)
        elif isinstance(config, QueueConfig):
            self._open_queue(config, EntityKind.QUEUE)
        else:
            topic, _ = self.find_node(config.topic)
            if not isinstance(topic, Topic):
                raise AmqpError(ErrorCondition.NOT_FOUND, f"{config.topic!r} is no topic")
            self._open_subscription(topic, config)
            self._store.save_rules(config.queue.name, config.rules)
        self._store.save_declaration(name.lower(), config)

    def remove(self, name: str) -> None:
        """Take an entity away with all that it holds; refused if there is none."""
        entity, is_management = self.find_node(name)
        if is_management or entity.kind is EntityKind.DEAD_LETTER_QUEUE:
            raise AmqpError(ErrorCondition.NOT_ALLOWED, f"{name!r} is part of another entity")
        for topic in self.entities:
            if isinstance(topic, Topic):
                topic.subscriptions = [one for one in topic.subscriptions if one is not entity]
        for one in [one for one in self.entities if lies_below(one.name, entity.name)]:
            del self._by_name[one.name.lower()]
            one.discard()
            if one.kind is not EntityKind.DEAD_LETTER_QUEUE:
                self._store.save_declaration(one.name.lower(), None)

    def _refuse_forward(self, config: EntityConfig) -> None:
        """Raise InvalidConfig for a target that is not there, or that leads back to the source."""
        leads_to = {
            name: one.leads_to()
            for name, one in self._by_name.items()
            if one.kind is not EntityKind.DEAD_LETTER_QUEUE
        }
        match config:
            case QueueConfig():
                refuse_forward(config, leads_to)
            case SubscriptionConfig():
                topic = config.topic.lower()
                leads_to[topic] = [*leads_to.get(topic, ()), config.queue.name]
                refuse_forward(config.queue, leads_to)

    def _forward(self, name: str, message: BrokeredMessage, now: float) -> DeadLetterReason | None:
        """Give an entity a message of another one; returns why it cannot have it."""
        if message.hops > HOPS_MAX:
            return TOO_MANY_HOPS
        try:
            target, _ = self.find_node(name)
            self._admit_forwarded(target.name)
        except AmqpError as refusal:
            return DeadLetterReason(refusal.condition.short_name, refusal.description)
        try:
            target.check(message)
        except AmqpError as refusal:
            return DeadLetterReason(NO_SESSION, refusal.description)
        with target.dispatching(now):
            target.send([message], now)
        return None

    def _update(self, entity: MessagingEntity | None, config: EntityConfig) -> None:
        wanted = config.queue if isinstance(config, SubscriptionConfig) else config
        match entity, wanted:
            case None, _:
                raise AmqpError(ErrorCondition.NOT_FOUND, f"There is no {name_of(config)!r}")
            case Queue(config=current), QueueConfig():
                is_alike = current.requires_session == wanted.requires_session
            case Topic(config=current), TopicConfig():
                is_alike = True
            case _:
                is_alike, current = False, wanted
        if not is_alike or current.duplicate_window_seconds != wanted.duplicate_window_seconds:
            description = "Sessions, duplicate detection and the kind of an entity stay as they are"
            raise AmqpError(ErrorCondition.ARGUMENT_ERROR, description)
        entity.configure(wanted)

    def _open_topic(self, config: TopicConfig) -> None:
        topic = Topic(config, (), self._store)
        topic.restore(self._store.load(topic.name))
        self._by_name[topic.name.lower()] = topic

    def _open_subscription(self, topic: Topic, config: SubscriptionConfig) -> None:
        name, stored = config.queue.name, self._store.load_rules(config.queue.name)
        current = config.rules if stored is None else stored
        rules = RuleSet(current, partial(self._store.save_rules, name))
        topic.subscriptions.append(self._open_queue(config.queue, EntityKind.SUBSCRIPTION, rules))

    def _open_queue(
        self, config: QueueConfig, kind: EntityKind, rules: RuleSet | None = None
    ) -> Queue:
        options = QueueOptions(self._store, count_expired_lock=self._count_expired_lock)
        dead_letters = PlainQueue(
            QueueConfig(config.name + DEAD_LETTER_SUFFIX, lock_seconds=config.lock_seconds),
            replace(options, kind=EntityKind.DEAD_LETTER_QUEUE),
        )
        queue_class = SessionQueue if config.requires_session else PlainQueue
        options = replace(
            options, kind=kind, dead_letters=dead_letters, rules=rules, forward=self._forward
        )
        queue = queue_class(config, options)
        for opened in (queue, dead_letters):
            opened.restore(self._store.load(opened.name))
            self._by_name[opened.name.lower()] = opened
        return queue


def name_of(config: EntityConfig) -> str:
    return config.queue.name if isinstance(config, SubscriptionConfig) else config.name
