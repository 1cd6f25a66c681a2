"""Break the engine inside this process: one change of its text, in every place that holds it."""

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType, ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change: the promise it breaks, the weather and play that show it, in how many seeds."""

    name: str
    promise: str
    module: str
    before: str
    after: str
    climate: str = "rough"
    seeds_max: int = 60
    play: str = "accounts"

    @property
    def is_rare(self) -> bool:
        """Whether only a patient search finds it."""
        return self.seeds_max > 60


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """The engine with the change, until the end of the block.

    The changed functions get their new code in place, so that whoever imported them has it too.
    """
    module = importlib.import_module(mutation.module)
    source = inspect.getsource(module)
    found = source.count(mutation.before)
    if found != 1:
        raise ValueError(f"{mutation.name!r} fits {found} places of {mutation.module}")
    broken = ModuleType(mutation.module)
    text = source.replace(mutation.before, mutation.after)
    exec(compile(text, module.__file__ or "", "exec"), broken.__dict__)
    theirs = functions_of(broken)
    healthy = {name: function.__code__ for name, function in functions_of(module).items()}
    changed = {n: c for n, c in healthy.items() if not is_same(c, theirs[n].__code__)}
    if not changed:
        raise ValueError(f"{mutation.name!r} changes no function of {mutation.module}")
    functions = functions_of(module)
    for name in changed:
        functions[name].__code__ = theirs[name].__code__
    try:
        yield
    finally:
        for name, code in changed.items():
            functions[name].__code__ = code


def functions_of(module: ModuleType) -> dict[str, FunctionType]:
    """The functions and methods that a module defines, by qualified name."""
    found: dict[str, FunctionType] = {}
    for value in list(vars(module).values()):
        if getattr(value, "__module__", None) == module.__name__:
            for part in [value, *vars(value).values()] if isinstance(value, type) else [value]:
                function = inner(part)
                if function is not None:
                    found[function.__qualname__] = function
    return found


def inner(part: Any) -> FunctionType | None:
    """The plain function in whatever wraps it; None where there is none with a text."""
    if isinstance(part, property | cached_property):
        part = part.fget if isinstance(part, property) else part.func
    part = inspect.unwrap(getattr(part, "__func__", part)) if callable(part) else part
    is_written = isinstance(part, FunctionType) and "<string>" not in part.__code__.co_filename
    return part if is_written else None


def is_same(one: CodeType, other: CodeType) -> bool:
    """Whether two codes do the same; lines do not matter."""
    constants = zip(one.co_consts, other.co_consts, strict=False)
    return (
        one.co_code == other.co_code
        and one.co_names == other.co_names
        and len(one.co_consts) == len(other.co_consts)
        and all(
            is_same(a, b) if isinstance(a, CodeType) and isinstance(b, CodeType) else a == b
            for a, b in constants
        )
    )
