"""Patches: a few changes of one item, all made or none, perhaps on a condition.

Specification: "Partial document update in Azure Cosmos DB", supported operations. All steps of a
path but the last must exist. An array takes an index as its step, or `-` for its end where a value
is added. A 400 says which change cannot be made, and why.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from local.cosmos.items.containers import SYSTEM_PROPERTIES
from local.cosmos.responses import BadRequest, NotOffered, RequestRefused
from local.cosmos.sql.parser import parse_filter
from local.cosmos.sql.syntax import Expression
from local.cosmos.sql.values import is_number

type Pointer = tuple[str, ...]

CHANGES_MAX = 10
LONG_END = 2**63  # the first whole number that 64 bits do not hold
KNOWN_KEYS = {"operations", "condition"}
OPERATION_KEYS = {"op", "path", "value", "from"}


@dataclass(frozen=True, slots=True)
class PatchOperation:
    """One change: `source` is where `move` takes its value from, `value` is for all but it."""

    name: str
    path: Pointer
    value: Any = None
    source: Pointer = ()


@dataclass(frozen=True, slots=True)
class ItemPatch:
    """Changes in order, and what must be true of the item before the first of them."""

    operations: tuple[PatchOperation, ...]
    condition: Expression | None = None

    def check_condition(self, item: dict[str, Any]) -> None:
        """Raise a 412 when the condition is not true of the item."""
        if self.condition is not None and self.condition.evaluate(item) is not True:
            raise RequestRefused(412, "the condition of the patch does not hold for the item")

    def check_key(self, key: Pointer) -> None:
        """Raise a 400 when a change would touch the partition key at `key`."""
        for operation in self.operations:
            for path in (operation.path, operation.source):
                if path and path == key[: len(path)]:
                    raise BadRequest(f"a patch cannot touch the partition key: /{'/'.join(path)}")

    def apply(self, item: dict[str, Any]) -> None:
        """Make all changes in place; a 400 says which one cannot be made, and why."""
        for at, operation in enumerate(self.operations):
            try:
                APPLY[operation.name](item, operation)
            except RequestRefused as refusal:
                where = f"patch operation {at}, {operation.name} /{'/'.join(operation.path)}"
                raise BadRequest(f"{where}: {refusal.message}") from refusal


def parse_patch(document: Any) -> ItemPatch:
    """Read the body of a patch; a 400 names what is not offered."""
    listed = document.get("operations") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not 1 <= len(listed) <= CHANGES_MAX:
        raise BadRequest(f"a patch must have 1 to {CHANGES_MAX} operations")
    for key in document:
        if key not in KNOWN_KEYS:
            raise NotOffered(f"{key!r} in a patch")
    condition = document.get("condition")
    if condition is not None and not isinstance(condition, str):
        raise BadRequest("the condition of a patch must be text: from c where c.n = 1")
    operations = tuple(parse_operation(one) for one in listed)
    return ItemPatch(operations, None if condition is None else parse_filter(condition))


def parse_operation(document: Any) -> PatchOperation:
    name = document.get("op") if isinstance(document, dict) else None
    if not isinstance(name, str) or name not in APPLY:
        raise NotOffered(f"the patch operation {name!r}")
    for key in document:
        if key not in OPERATION_KEYS:
            raise NotOffered(f"{key!r} in a patch operation")
    path = parse_path(document.get("path"))
    if name == "move":
        return PatchOperation(name, path, source=parse_path(document.get("from")))
    if name != "remove" and "value" not in document:
        raise BadRequest(f"the patch operation {name!r} needs a value")
    return PatchOperation(name, path, document.get("value"))


def parse_path(text: Any) -> Pointer:
    """`/a/b~1c/0` as ("a", "b/c", "0"); neither the id nor what the service writes."""
    if not isinstance(text, str) or not text.startswith("/") or text == "/":
        raise BadRequest(f"a path of a patch must look like /a/b, not {text!r}")
    path = tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))
    if path[0] in ("id", *SYSTEM_PROPERTIES):
        raise BadRequest(f"a patch cannot touch {text}")
    return path


def put(item: dict[str, Any], operation: PatchOperation) -> None:
    """Set a member, there or not; an element must be there."""
    holder, step = find_holder(item, operation.path)
    key = step if isinstance(holder, dict) else read_index(step, len(holder) - 1)
    holder[key] = operation.value


def replace(item: dict[str, Any], operation: PatchOperation) -> None:
    """Set what must be there."""
    holder, key = find_existing(item, operation.path)
    holder[key] = operation.value


def remove(item: dict[str, Any], operation: PatchOperation) -> None:
    """Take away what must be there; later elements of an array move up."""
    holder, key = find_existing(item, operation.path)
    del holder[key]


def increase(item: dict[str, Any], operation: PatchOperation) -> None:
    """Add to a number; where there is none, set it."""
    if not is_number(operation.value):
        raise BadRequest("only a number can be added")
    holder, step = find_holder(item, operation.path)
    if isinstance(holder, dict) and step not in holder:
        holder[step] = operation.value
        return
    key = step if isinstance(holder, dict) else read_index(step, len(holder) - 1)
    if not is_number(holder[key]):
        raise BadRequest("what stands there is not a number")
    number = float(holder[key]) + float(operation.value)
    if not isfinite(number):  # JSON cannot hold it
        raise BadRequest("the sum is too large")
    # Without an exponent, which clients do not read into a whole number.
    holder[key] = int(number) if number.is_integer() and abs(number) < LONG_END else number


def move(item: dict[str, Any], operation: PatchOperation) -> None:
    """Take away what must be there and add it at another path, which must not be inside of it."""
    if operation.path[: len(operation.source)] == operation.source:
        raise BadRequest("nothing can be moved into itself")
    holder, key = find_existing(item, operation.source)
    insert(item, operation.path, holder.pop(key))


APPLY: dict[str, Callable[[dict[str, Any], PatchOperation], None]] = {
    "add": lambda item, operation: insert(item, operation.path, operation.value),
    "set": put,
    "replace": replace,
    "remove": remove,
    "incr": increase,
    "move": move,
}


def insert(item: dict[str, Any], path: Pointer, value: Any) -> None:
    """Set a member, there or not; before an element, or at the end, insert one."""
    holder, step = find_holder(item, path)
    if isinstance(holder, dict):
        holder[step] = value
    elif step == "-":
        holder.append(value)
    else:
        holder.insert(read_index(step, len(holder)), value)


def find_existing(item: dict[str, Any], path: Pointer) -> tuple[Any, Any]:
    """The object or array that holds what is at a path, and its name or index there."""
    holder, step = find_holder(item, path)
    if isinstance(holder, list):
        return holder, read_index(step, len(holder) - 1)
    if step not in holder:
        raise BadRequest("there is nothing at this path")
    return holder, step


def find_holder(item: dict[str, Any], path: Pointer) -> tuple[Any, str]:
    """The object or array that all but the last step lead to, and the last step."""
    holder: Any = item
    for step in path[:-1]:
        if isinstance(holder, list):
            holder = holder[read_index(step, len(holder) - 1)]
        elif isinstance(holder, dict) and step in holder:
            holder = holder[step]
        else:
            raise BadRequest(f"the path leads nowhere at {step!r}")
    if not isinstance(holder, dict | list):
        raise BadRequest("the path goes on below a value that is no object or array")
    return holder, path[-1]


def read_index(step: str, highest: int) -> int:
    """A step as an index of zero to `highest`."""
    if not (step.isascii() and step.isdigit()) or (step != "0" and step[0] == "0"):
        raise BadRequest(f"{step!r} is not an index of an array")
    if len(step) > len(str(highest)) or int(step) > highest:
        raise BadRequest(f"the array has no place {step}")
    return int(step)
