"""Addresses: which node of the namespace a link is for."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from local.servicebus.entity import Entity
from local.servicebus.refusal import Condition, Refused

DEAD_LETTER_SUFFIX = "/$DeadLetterQueue"
MANAGEMENT_SUFFIX = "/$management"
CBS = "$cbs"


class Kind(Enum):
    """What a node is for."""

    MESSAGES = "messages"
    MANAGEMENT = "management"
    AUTHORIZATION = "authorization"


@dataclass(frozen=True, slots=True)
class Node:
    """What stands behind an address; only authorization has no entity."""

    kind: Kind
    entity: Entity | None = None


class Directory:
    """Every node of a namespace. Names ignore case; a scheme and host in front do not matter."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        self._nodes = {CBS: Node(Kind.AUTHORIZATION)}
        for entity in entities:
            name = entity.name.lower()
            self._nodes[name] = Node(Kind.MESSAGES, entity)
            self._nodes[name + MANAGEMENT_SUFFIX] = Node(Kind.MANAGEMENT, entity)

    def find(self, address: str | None) -> Node:
        """The node at an address; refused when there is none."""
        _, scheme, rest = (address or "").rpartition("://")
        path = rest.partition("/")[2] if scheme else rest
        node = self._nodes.get(path.lower())
        if node is None:
            raise Refused(Condition.NOT_FOUND, f"The messaging entity {path!r} does not exist")
        return node
