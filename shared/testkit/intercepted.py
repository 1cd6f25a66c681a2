"""A journal whose calls pass somebody who is told their names: to fail, to wait, or to count."""

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from shared.storage.journal import Journal

# The names of all calls of a journal, and of those that write: they call `write`, or `revise`.
CALLS = frozenset(name for name, one in vars(Journal).items() if iscoroutinefunction(one))
WRITES = frozenset(
    name for name in CALLS if {"write", "revise"} & {*vars(Journal)[name].__code__.co_names}
)


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
