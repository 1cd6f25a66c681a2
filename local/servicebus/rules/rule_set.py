"""The rules of one subscription, as declared and as clients have changed them since."""

from collections.abc import Sequence

from local.servicebus.entities.store import MessageStore
from local.servicebus.protocol.errors import AmqpError, ErrorCondition
from local.servicebus.rules.filters import (
    SubscriptionRule,
    TrueFilter,
    read_filterable_properties,
)


class RuleSet:
    """Once a client has added or removed a rule, the declared ones count no more."""

    def __init__(
        self, subscription: str, declared: Sequence[SubscriptionRule], store: MessageStore
    ) -> None:
        self._subscription = subscription
        self._store = store
        stored = store.load_rules(subscription)
        self._rules = {one.name.lower(): one for one in (declared if stored is None else stored)}

    @property
    def rules(self) -> list[SubscriptionRule]:
        """In the order in which they were added."""
        return list(self._rules.values())

    def add(self, rule: SubscriptionRule) -> None:
        """Take from now on what this rule matches, too; refused if its name is taken."""
        if rule.name.lower() in self._rules:
            raise AmqpError(
                ErrorCondition.ENTITY_ALREADY_EXISTS, f"There is a rule {rule.name!r} already"
            )
        self._rules[rule.name.lower()] = rule
        self._store.save_rules(self._subscription, self.rules)

    def remove(self, name: str) -> None:
        """Refused if there is no rule of this name."""
        if self._rules.pop(name.lower(), None) is None:
            raise AmqpError(ErrorCondition.NOT_FOUND, f"There is no rule {name!r}")
        self._store.save_rules(self._subscription, self.rules)

    def match(self, encoded: bytes) -> bool:
        filters = [rule.filter for rule in self._rules.values()]
        if any(isinstance(one, TrueFilter) for one in filters):
            return True  # without decoding the message's properties
        if not filters:
            return False
        properties = read_filterable_properties(encoded)
        return any(one.matches(properties) for one in filters)
