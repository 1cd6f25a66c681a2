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


@dataclass
class Tried:
    """Which sessions were tried in vain, so that the others come first."""

    at: dict[str, int] = field(default_factory=dict)
    tries: int = 0

    def in_turn(self, sessions: Sequence[str]) -> list[str]:
        """Those not tried yet in the order given, then those tried longest ago.

        Sessions that are not among them need nothing any more, and are forgotten.
        """
        self.at = {session: self.at[session] for session in sessions if session in self.at}
        return sorted(sessions, key=lambda session: self.at.get(session, 0))

    def note(self, session: str, *, helped: bool) -> None:
        """Remember how it went."""
        if helped:
            self.at.pop(session, None)
        else:
            self.tries += 1
            self.at[session] = self.tries
