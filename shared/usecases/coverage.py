"""What the journal is known to cover: copies are recognised, and other content is found out.

That a message is covered stays true for ever, so it is remembered, and older reads will do. One
page of entries answers for the copies of many messages, because copies come in about the order in
which the work was done.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.domain.journal import Entry, cursor_of, is_halted_on, is_place
from shared.domain.message import Message, Number
from shared.ports import Covers, Journal
from shared.usecases.recent import Recent

PAGE = 40
# Entries of other groups, faults and parked messages lie between those of a group.
MARGIN = 4

# A number of a session. A number that a fenced producer did not get to use is used again by the
# next one, so the owner level is part of it.
type Place = tuple[str, Number]


@dataclass(frozen=True, slots=True)
class Found:
    """Where a number is covered, and with what content."""

    position: int
    digest: str


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where the last copy of a group was met."""

    position: int
    sequence: int

    def guess(self, number: Number) -> int:
        """Where another number of the group is, if the group has the session to itself."""
        return max(0, self.position + number.sequence - self.sequence)


class Coverage:
    """A worker's bounded memory of covered numbers and what they were used for."""

    def __init__(self, journal: Journal, remembered_max: int = 50_000) -> None:
        self.journal = journal
        self.found: Recent[Place, Found] = Recent(remembered_max)
        # By session and group; without a group, where any copy of the session was met.
        self.anchors: Recent[tuple[str, str | None], Anchor] = Recent(remembered_max)

    def known(self, message: Message) -> str | None:
        """The digest under which the message's number is known to be covered."""
        number = message.number
        found = self.found.get((message.session, number)) if number else None
        if number is None or found is None:
            return None
        self.meet(message.session, number, found.position)
        return found.digest

    async def look(self, message: Message) -> str | None:
        """Look once where the message's entry would be; for one without a number, at its marker.

        The first look at a session is a point read, every later one a page.
        """
        number = message.number
        if number is None:
            mark = await self.journal.marked(message.session, message.id)
            return mark.covered.digest if mark else None
        anchor = self.anchors.get((message.session, number.group))
        nearby = self.anchors.get((message.session, None))
        if anchor is not None:
            await self.read(message.session, anchor.guess(number), PAGE)
        elif nearby is not None:
            await self.read(message.session, max(0, nearby.position - MARGIN), PAGE)
        else:
            await self.read(message.session, number.sequence, 1)
        return self.known(message)

    async def search(self, head: Entry, message: Message) -> str | None:
        """The content under the number of a message of the head's past; None if it is compacted.

        One page where the entry is if its group has the session to itself; else by halves.
        """
        number = message.number
        if number is None:
            return await self.look(message)
        if head.halt is not None and is_halted_on(head, message):
            return await self.used_for(message, number, head.halt.at)
        anchor = Anchor(head.position, cursor_of(head, number.group).next - 1)
        await self.read(message.session, max(0, anchor.guess(number) - MARGIN), PAGE)
        return self.known(message) or await self.search_by_halves(head, message, number)

    async def search_by_halves(self, head: Entry, message: Message, number: Number) -> str | None:
        """Find the entry that moved its group's cursor beyond the number."""
        below, at = -1, head.position
        while at - below > 1:
            middle = (below + at) // 2
            entry = await self.journal.entry(message.session, middle)
            # What is compacted lies below everything that is not.
            if entry is not None and cursor_of(entry, number.group).next > number.sequence:
                at = middle
            else:
                below = middle
        return await self.used_for(message, number, at)

    async def used_for(self, message: Message, number: Number, position: int) -> str | None:
        """The content that an entry covers under the message's number, at any owner level."""
        entry = await self.journal.entry(message.session, position)
        covers = entry.covers if entry else ()
        self.remember(message.session, {position: covers})
        self.meet(message.session, number, position)
        return next((c.digest for c in covers if is_place(c.number, message)), None)

    async def read(self, session: str, start: int, limit: int) -> None:
        """Read what entries cover, and remember it."""
        self.remember(session, await self.journal.covers(session, start, limit))

    def remember(self, session: str, covers: Mapping[int, Covers]) -> None:
        """Remember what entries cover."""
        for position, covered in ((at, c) for at, several in covers.items() for c in several):
            self.found[session, covered.number] = Found(position, covered.digest)

    def meet(self, session: str, number: Number, position: int) -> None:
        """Remember where a copy was met: the next one of its group is probably nearby."""
        for group in (number.group, None):
            self.anchors[session, group] = Anchor(position, number.sequence)
