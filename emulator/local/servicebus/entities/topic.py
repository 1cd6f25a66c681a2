"""A topic: what is sent to it arrives in every subscription whose rules match."""

from collections.abc import Sequence
from dataclasses import replace

from local.servicebus.amqp.errors import AmqpError
from local.servicebus.amqp.message_format import note_first_number
from local.servicebus.config import QueueConfig, TopicConfig
from local.servicebus.entities.entity import EntityKind, MessagingEntity
from local.servicebus.entities.indexes import TimerKey, TimerKind
from local.servicebus.entities.queue import NO_SESSION, Queue
from local.servicebus.entities.store import MessageStore
from local.servicebus.message import BrokeredMessage, DeadLetterReason, StoredMessage


class Topic(MessagingEntity):
    """Holds nothing but scheduled messages: they meet the rules when their time comes."""

    def __init__(
        self, config: TopicConfig, subscriptions: Sequence[Queue], store: MessageStore
    ) -> None:
        super().__init__(config, EntityKind.TOPIC, store)
        self.config = config
        self.subscriptions = list(subscriptions)

    def configure(self, config: QueueConfig | TopicConfig) -> None:
        super().configure(config)
        if isinstance(config, TopicConfig):
            self.config = config

    def check(self, message: BrokeredMessage) -> None:
        pass  # any message will do

    def enqueue(self, message: BrokeredMessage, now: float) -> int:
        """Give a copy to every subscription that wants the message, once however many rules match.

        In a subscription with sessions a message without a session id becomes a dead letter.
        """
        number = self.next_sequence_number()
        is_first = message.hops == 0  # what was forwarded keeps the number it had before
        limited = replace(
            message,
            encoded=note_first_number(message.encoded, number) if is_first else message.encoded,
            time_to_live_seconds=self.time_to_live(message),
        )
        for queue in self.subscriptions:
            if queue.rules is None or not queue.rules.match(message.encoded):
                continue
            try:
                queue.check(limited)
            except AmqpError as refusal:
                reason = DeadLetterReason(NO_SESSION, refusal.description)
                queue.dead_letter_on_arrival(limited, reason, now)
            else:
                queue.enqueue(limited, now)
        return number

    def leads_to(self) -> list[str]:
        return [queue.name for queue in self.subscriptions]

    def size(self) -> int:
        return super().size() + sum(queue.size() for queue in self.subscriptions)

    def make_ready(self, stored: StoredMessage) -> None:
        """Do nothing: a topic has no active messages."""

    make_unready = make_ready

    def run_timer(self, kind: TimerKind, key: TimerKey, now: float) -> None:
        stored = self.index.find(key) if isinstance(key, int) else None
        if kind is TimerKind.ACTIVATE and stored is not None:
            self.activate(stored, now)

    def dispatch(self, now: float) -> None:
        """Deliver in the subscriptions: links wait only there."""
        for queue in self.subscriptions:
            queue.dispatch(now)

    def remove_waiting_links(self) -> None:
        """Do nothing: its subscriptions are entities of their own."""
