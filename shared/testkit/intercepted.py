"""A journal whose calls pass somebody who is told their names: to fail, to wait, or to count."""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from shared.storage.journal import Journal

# What each method of a journal names in its code.
NAMED = {
    name: frozenset(one.__code__.co_names)
    for name, one in vars(Journal).items()
    if iscoroutinefunction(one)
}
# Methods that only make other calls of the journal: a worker may die between two of these.
COMPOSED = frozenset(
    n for n, named in NAMED.items() if named & {*NAMED} and "container" not in named
)
# The names of all other calls of a journal, and of those that write.
CALLS = frozenset(NAMED) - COMPOSED
WRITES = frozenset(name for name in CALLS if NAMED[name] & {"write", "revise"})


class InterceptedJournal(Journal):
    """A Journal over another one: every call of it passes `intercept`."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(journal.container)
        self.journal = journal

    async def intercept(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG002 - for those that override it
        """Make the call of this name; called again, it is made again."""
        return await call()


def passing(name: str) -> Callable[..., Awaitable[Any]]:
    """Return a method that passes `intercept` on its way to the other journal's."""

    async def passed(self: InterceptedJournal, *arguments: Any, **options: Any) -> Any:
        method = getattr(self.journal, name)
        return await self.intercept(name, partial(method, *arguments, **options))

    return passed


for call_name in CALLS:
    setattr(InterceptedJournal, call_name, passing(call_name))
