"""What each operation of a patch does to an item, in place.

Specification: "Partial document update in Azure Cosmos DB", supported operations. All steps of a
path but the last must exist. An array takes an index as its step, or `-` for its end where a value
is added. A 400 Refusal says why an operation cannot be made.

Patches: a few changes of one item, all made or none, perhaps on a condition.

Specification: "Partial document update in Azure Cosmos DB".
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from local.cosmos.answers import Refusal, unsupported
from local.cosmos.items.containers import SYSTEM_PROPERTIES
from local.cosmos.query.evaluation import evaluate
from local.cosmos.query.parser import parse_filter
from local.cosmos.query.syntax import Expression
from local.cosmos.query.values import is_number

type Pointer = tuple[str, ...]

END = "-"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change: `source` is where `move` takes its value from, `value` is for all but it."""

    name: str
    path: Pointer
    value: Any = None
    source: Pointer = ()


def parse_pointer(text: Any) -> Pointer:
    """`/a/b~1c/0` as ("a", "b/c", "0")."""
    if not isinstance(text, str) or not text.startswith("/") or text == "/":
        raise Refusal(400, f"a path of a patch must look like /a/b, not {text!r}")
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def add(item: dict[str, Any], operation: Operation) -> None:
    """Set a member, there or not; before an element, or at the end, insert one."""
    insert(item, operation.path, operation.value)


def put(item: dict[str, Any], operation: Operation) -> None:
    """Set a member, there or not; an element must be there."""
    holder, step = holder_of(item, operation.path)
    holder[step if isinstance(holder, dict) else element(holder, step)] = operation.value


def replace(item: dict[str, Any], operation: Operation) -> None:
    """Set what must be there."""
    holder, step = existing(item, operation.path)
    holder[step] = operation.value


def remove(item: dict[str, Any], operation: Operation) -> None:
    """Take away what must be there; later elements of an array move up."""
    holder, step = existing(item, operation.path)
    del holder[step]


def increase(item: dict[str, Any], operation: Operation) -> None:
    """Add to a number; where there is none, set it."""
    if not is_number(operation.value):
        raise Refusal(400, "only a number can be added")
    holder, step = holder_of(item, operation.path)
    if isinstance(holder, dict) and step not in holder:
        holder[step] = operation.value
        return
    key = step if isinstance(holder, dict) else element(holder, step)
    if not is_number(holder[key]):
        raise Refusal(400, "what stands there is not a number")
    holder[key] = finite(holder[key] + operation.value)


def move(item: dict[str, Any], operation: Operation) -> None:
    """Take away what must be there and add it at another path, which must not be inside of it."""
    if operation.path[: len(operation.source)] == operation.source:
        raise Refusal(400, "nothing can be moved into itself")
    holder, step = existing(item, operation.source)
    value = holder[step]
    del holder[step]
    insert(item, operation.path, value)


APPLY: dict[str, Callable[[dict[str, Any], Operation], None]] = {
    "add": add,
    "set": put,
    "replace": replace,
    "remove": remove,
    "incr": increase,
    "move": move,
}


def insert(item: dict[str, Any], path: Pointer, value: Any) -> None:
    """Set a member, or insert an element."""
    holder, step = holder_of(item, path)
    if isinstance(holder, dict):
        holder[step] = value
    else:
        holder.insert(len(holder) if step == END else index(step, len(holder)), value)


def existing(item: dict[str, Any], path: Pointer) -> tuple[Any, Any]:
    """The object or array that holds what is at a path, and its name or index there."""
    holder, step = holder_of(item, path)
    if isinstance(holder, list):
        return holder, element(holder, step)
    if step not in holder:
        raise Refusal(400, "there is nothing at this path")
    return holder, step


def holder_of(item: dict[str, Any], path: Pointer) -> tuple[Any, str]:
    """The object or array that all but the last step lead to, and the last step."""
    holder: Any = item
    for step in path[:-1]:
        if isinstance(holder, list):
            holder = holder[element(holder, step)]
        elif isinstance(holder, dict) and step in holder:
            holder = holder[step]
        else:
            raise Refusal(400, f"the path leads nowhere at {step!r}")
    if not isinstance(holder, dict | list):
        raise Refusal(400, "the path goes on below a value that is no object or array")
    return holder, path[-1]


def element(elements: list[Any], step: str) -> int:
    """The index of an element that is there."""
    return index(step, len(elements) - 1)


def index(step: str, highest: int) -> int:
    """A step as an index of zero to `highest`."""
    if not (step.isascii() and step.isdigit()) or (step != "0" and step[0] == "0"):
        raise Refusal(400, f"{step!r} is not an index of an array")
    if len(step) > len(str(highest)) or int(step) > highest:
        raise Refusal(400, f"the array has no place {step}")
    return int(step)


def finite(number: float) -> float:
    """The number itself, which JSON must be able to hold."""
    if not isfinite(number):
        raise Refusal(400, "the sum is too large")
    return number


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
                APPLY[operation.name](item, operation)
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
    if not isinstance(name, str) or name not in APPLY:
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
