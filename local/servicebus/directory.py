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
    """Every node of a namespace, by path; names ignore case."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        self._nodes = {CBS: Node(Kind.AUTHORIZATION)}
        for entity in entities:
            name = entity.name.lower()
            self._nodes[name] = Node(Kind.MESSAGES, entity)
            self._nodes[name + MANAGEMENT_SUFFIX] = Node(Kind.MANAGEMENT, entity)

    def find(self, path: str) -> Node:
        """The node at a path; refused when there is none."""
        node = self._nodes.get(path.lower())
        if node is None:
            raise Refused(Condition.NOT_FOUND, f"The messaging entity {path!r} could not be found")
        return node


def path_of(address: str | None) -> str:
    """The path in an address; a scheme and host in front do not matter."""
    _, scheme, rest = (address or "").rpartition("://")
    return rest.partition("/")[2] if scheme else rest
