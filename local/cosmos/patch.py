"""Patches: a few changes of one item, all made or none, perhaps on a condition.

Specification: "Partial document update in Azure Cosmos DB".
"""

from dataclasses import dataclass
from typing import Any

from local.cosmos.answers import Refusal, unsupported
from local.cosmos.patch_operations import OPERATIONS, Operation, Pointer, parse_pointer
from local.cosmos.query_evaluator import evaluate
from local.cosmos.query_parser import parse_filter
from local.cosmos.query_syntax import Expression
from local.cosmos.system_properties import SYSTEM_PROPERTIES

CHANGES_MAX = 10
KNOWN_KEYS = {"operations", "condition"}
OPERATION_KEYS = {"op", "path", "value", "from"}


@dataclass(frozen=True, slots=True)
class Patch:
    """Changes in order, and what must be true of the item before the first of them."""

    operations: tuple[Operation, ...]
    condition: Expression | None = None

    def check_condition(self, item: dict[str, Any]) -> None:
        """Raise a 412 Refusal when the condition is not true of the item."""
        if self.condition is not None and evaluate(self.condition, item) is not True:
            raise Refusal(412, "the condition of the patch does not hold for the item")

    def check_spares(self, key: Pointer) -> None:
        """Raise a 400 Refusal when a change would touch the partition key at `key`."""
        for operation in self.operations:
            for path in (operation.path, operation.source):
                if path and path == key[: len(path)]:
                    raise Refusal(400, f"a patch cannot touch the partition key: {shown(path)}")

    def apply(self, item: dict[str, Any]) -> None:
        """Make all changes in place; a 400 Refusal says which one cannot be made, and why."""
        for at, operation in enumerate(self.operations):
            try:
                OPERATIONS[operation.name](item, operation)
            except Refusal as refusal:
                where = f"patch operation {at}, {operation.name} {shown(operation.path)}"
                raise Refusal(400, f"{where}: {refusal.message}") from refusal


def parse_patch(document: Any) -> Patch:
    """Read the body of a patch; a 400 Refusal names what is not offered."""
    listed = document.get("operations") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= CHANGES_MAX:
        raise Refusal(400, f"a patch must have 1 to {CHANGES_MAX} operations")
    for key in document:
        if key not in KNOWN_KEYS:
            raise unsupported(f"{key!r} in a patch")
    condition = document.get("condition")
    if condition is not None and not isinstance(condition, str):
        raise Refusal(400, "the condition of a patch must be text: from c where c.n = 1")
    operations = tuple(parse_operation(one) for one in listed)
    return Patch(operations, None if condition is None else parse_filter(condition))


def parse_operation(document: Any) -> Operation:
    """Read one operation."""
    name = document.get("op") if isinstance(document, dict) else None
    if not isinstance(name, str) or name not in OPERATIONS:
        raise unsupported(f"the patch operation {name!r}")
    for key in document:
        if key not in OPERATION_KEYS:
            raise unsupported(f"{key!r} in a patch operation")
    path = changeable(document.get("path"))
    if name == "move":
        return Operation(name, path, source=changeable(document.get("from")))
    if name != "remove" and "value" not in document:
        raise Refusal(400, f"the patch operation {name!r} needs a value")
    return Operation(name, path, document.get("value"))


def changeable(text: Any) -> Pointer:
    """A path that is neither the id nor a property that the service writes."""
    path = parse_pointer(text)
    if path[0] in ("id", *SYSTEM_PROPERTIES):
        raise Refusal(400, f"a patch cannot touch {text}")
    return path


def shown(path: Pointer) -> str:
    """A path as a message shows it."""
    return "/" + "/".join(path)
