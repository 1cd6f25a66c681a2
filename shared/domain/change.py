"""The difference between a large state and the last one that was written whole, and back.

It is a JSON Patch of RFC 6902 that only adds, replaces and removes, so other programs can apply it,
too. It is always the difference from one whole state, and never from another difference: nothing is
lost with an entry in between.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import islice
from typing import Any

from shared.domain.errors import NotStorable
from shared.domain.handler import require_storable
from shared.domain.journal import Json
from shared.domain.values import differing

# No operation is written in fewer bytes.
OPERATION_BYTES_MIN = 30

type Operations = Sequence[Json]


def find_change(base: Json, state: Json, bytes_max: int) -> Operations | None:
    """The operations that make `state` of `base`, or None where it takes more bytes than that.

    None, too, where a change cannot say it: what is applied to the base has the same order of names
    and the same values, by the rule of values.py, or the state is written whole.
    """
    # Of one that is too large, not all has to be found.
    change = tuple(islice(differences(base, state, ""), bytes_max // OPERATION_BYTES_MIN + 1))
    try:
        # A value lies deeper in a change than in its state.
        if require_storable({"change": change}) > bytes_max or any(not c["path"] for c in change):
            return None
    except NotStorable:
        return None
    # To Python True is 1, so that the search may have missed something.
    return None if any(differing(state, apply_change(base, change))) else change


def apply_change(base: Json, change: Operations) -> Json:
    """The state that a change makes of a base, which stays as it is; they share what is equal."""
    state = dict(base)
    copied = {id(state)}
    for operation in change:
        *way, last = map(unescape, operation["path"].split("/")[1:])
        holder: Any = state
        for name in way:
            place = int(name) if isinstance(holder, list) else name
            if id(holder[place]) not in copied:
                holder[place] = copy(holder[place])
                copied.add(id(holder[place]))
            holder = holder[place]
        if operation["op"] == "remove":
            holder.pop(int(last) if isinstance(holder, list) else last)
        elif not isinstance(holder, list):
            holder[last] = operation["value"]
        elif operation["op"] == "add":
            holder.insert(int(last), operation["value"])
        else:
            holder[int(last)] = operation["value"]
    return state


def differences(before: Any, after: Any, path: str) -> Iterator[Json]:
    """The operations that make one value of another, in the order in which they are applied."""
    if isinstance(before, list) and isinstance(after, list):
        yield from list_differences(before, after, path)
        return
    kept: list[str] = []
    if is_object := isinstance(before, dict) and isinstance(after, dict):
        kept = [name for name in before if name in after]
    names = list(after) if is_object else []
    # What is added comes last. An object with its names in another order is written anew.
    if not is_object or names[: len(kept)] != kept:
        yield replacing(path, after)
        return
    yield from (removing(f"{path}/{escape(name)}") for name in before if name not in after)
    for name in kept:
        if before[name] != after[name]:
            yield from differences(before[name], after[name], f"{path}/{escape(name)}")
    yield from (adding(f"{path}/{escape(name)}", after[name]) for name in names[len(kept) :])


def list_differences(before: list[Any], after: list[Any], path: str) -> Iterator[Json]:
    """The operations between two lists, of which mostly one end grows or falls off."""
    most = min(len(before), len(after))
    first = next((n for n in range(most) if before[n] != after[n]), most)
    most -= first
    last = next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)
    gone, new = before[first : len(before) - last], after[first : len(after) - last]
    fallen = gone.index(new[0]) if new and new[0] in gone else 0
    if fallen and gone[fallen:] == new[: len(gone) - fallen]:
        # The first ones fell off.
        yield from (removing(f"{path}/{first}") for _ in range(fallen))
        gone = gone[fallen:]
    led = new.index(gone[0]) if gone and gone[0] in new else 0
    if led and new[led:] == gone[: len(new) - led]:
        # Others came before the first.
        yield from (adding(f"{path}/{first + n}", new[n]) for n in range(led))
        first, new = first + led, new[led:]
    both = min(len(gone), len(new))
    for n in range(both):
        if gone[n] != new[n]:
            yield from differences(gone[n], new[n], f"{path}/{first + n}")
    yield from (removing(f"{path}/{first + both}") for _ in gone[both:])
    yield from (adding(f"{path}/{first + n}", new[n]) for n in range(both, len(new)))


def adding(path: str, value: Any) -> Json:
    return {"op": "add", "path": path, "value": value}


def replacing(path: str, value: Any) -> Json:
    return {"op": "replace", "path": path, "value": value}


def removing(path: str) -> Json:
    return {"op": "remove", "path": path}


def escape(name: str) -> str:
    """A name as a part of a pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")
