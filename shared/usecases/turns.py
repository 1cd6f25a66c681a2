"""Whose turn it is: among operations on a session, and among sessions that need something."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary


class Turns:
    """A lock per session; one that nobody holds or waits for is forgotten."""

    def __init__(self) -> None:
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, session: str) -> asyncio.Lock:
        """The lock that makes operations on one session wait for each other, first come first."""
        return self.locks.setdefault(session, asyncio.Lock())


# So many names are passed to a search at most.
LEFT_OUT_MAX = 1_000


@dataclass
class Tried:
    """Which sessions were tried in vain, so that the others come first."""

    at: dict[str, int] = field(default_factory=dict)
    tries: int = 0

    def in_vain(self) -> list[str]:
        """Those tried in vain, the last one first: a search may leave them out."""
        return sorted(self.at, key=lambda session: -self.at[session])[:LEFT_OUT_MAX]

    def in_turn(self, found: Sequence[str]) -> list[str]:
        """Those found that were not tried yet, in their order, then all that were tried in vain."""
        fresh = [session for session in found if session not in self.at]
        return fresh + sorted(self.at, key=lambda session: self.at[session])

    def note(self, session: str, *, helped: bool) -> None:
        """Remember how it went."""
        if helped:
            self.at.pop(session, None)
        else:
            self.tries += 1
            self.at[session] = self.tries
