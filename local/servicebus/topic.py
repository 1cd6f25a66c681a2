"""A topic: what is sent to it arrives in every subscription that wants it."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from local.servicebus.alarms import Alarm, Key
from local.servicebus.config import TopicConfig
from local.servicebus.inbox import Inbox
from local.servicebus.ledger import Ledger
from local.servicebus.message import DeadLetter, Message
from local.servicebus.queue import Queue
from local.servicebus.refusal import Condition, Refused
from local.servicebus.rules import Rule, TrueFilter
from local.servicebus.traits import Traits, read_traits


class Arrival:
    """A message on its way into subscriptions, looked into at most once."""

    def __init__(self, message: Message) -> None:
        self.message = message

    @cached_property
    def traits(self) -> Traits:
        """What filters can see of it."""
        return read_traits(self.message.encoded)


class Subscription:
    """A queue that takes what one of its rules matches, once however many do.

    Once a client has added or removed a rule, the declared ones count no more.
    """

    def __init__(self, queue: Queue, declared: Sequence[Rule], ledger: Ledger) -> None:
        self.queue = queue
        self._ledger = ledger
        kept = ledger.load_rules(queue.name)
        self._rules = {rule.name.lower(): rule for rule in (declared if kept is None else kept)}

    @property
    def rules(self) -> list[Rule]:
        """In the order in which they were added."""
        return list(self._rules.values())

    def add(self, rule: Rule) -> None:
        """Take from now on what this rule matches, too; refused if its name is taken."""
        if rule.name.lower() in self._rules:
            raise Refused(Condition.ENTITY_ALREADY_EXISTS, f"There is a rule {rule.name!r} already")
        self._rules[rule.name.lower()] = rule
        self._ledger.keep_rules(self.queue.name, self.rules)

    def remove(self, name: str) -> None:
        """Follow a rule no longer; refused if there is none of this name."""
        if self._rules.pop(name.lower(), None) is None:
            raise Refused(Condition.NOT_FOUND, f"There is no rule {name!r}")
        self._ledger.keep_rules(self.queue.name, self.rules)

    def take(self, arrival: Arrival, now: float) -> None:
        """Enqueue the message if it is wanted; one that lacks a session is a dead letter."""
        if not self._wants(arrival):
            return
        try:
            self.queue.check(arrival.message)
        except Refused as refusal:
            why = DeadLetter.without_session(refusal.description)
            self.queue.bury_at_once(arrival.message, why, now)
        else:
            self.queue.arrive(arrival.message, now)

    def _wants(self, arrival: Arrival) -> bool:
        # A true filter is asked first and without traits: it spares decoding every message.
        filters = [rule.filter for rule in self._rules.values()]
        return any(isinstance(one, TrueFilter) for one in filters) or any(
            one.matches(arrival.traits) for one in filters
        )


class Topic(Inbox):
    """Keeps nothing but scheduled messages: they meet the rules when their time comes."""

    def __init__(
        self, config: TopicConfig, subscriptions: tuple[Subscription, ...], ledger: Ledger
    ) -> None:
        super().__init__(
            config.name,
            ledger=ledger,
            duplicate_window_seconds=config.duplicate_window_seconds,
        )
        self._time_to_live_seconds = config.time_to_live_seconds
        self._subscriptions = subscriptions

    def check(self, message: Message) -> None:
        """Any message will do."""

    def arrive(self, message: Message, now: float) -> int:
        """Give a copy to every subscription that wants the message."""
        limited = message.shortest(self._time_to_live_seconds)
        arrival = Arrival(replace(message, time_to_live_seconds=limited))
        for subscription in self._subscriptions:
            subscription.take(arrival, now)
        return self.next_number()

    def ring(self, alarm: Alarm, key: Key, now: float) -> None:
        """Nothing but a schedule comes due here."""
        stored = self.shelf.find(key) if isinstance(key, int) else None
        if alarm is Alarm.ACTIVATE and stored is not None:
            self.activate(stored, now)
