"""What each operation of a patch does to an item, in place.

Specification: "Partial document update in Azure Cosmos DB", supported operations. All steps of a
path but the last must exist. An array takes an index as its step, or `-` for its end where a value
is added. A 400 Refusal says why an operation cannot be made.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Any

from local.cosmos.answers import Refusal
from local.cosmos.query_values import is_number

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


OPERATIONS: dict[str, Callable[[dict[str, Any], Operation], None]] = {
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
