"""What the journal is known to cover: copies are recognised, and other content is found out.

That a message is covered stays true for ever, so it is remembered, and older reads will do. One
page of entries answers for the copies of many messages.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from shared.domain.journal import Entry, cursor_of
from shared.domain.message import Message, Number
from shared.ports import Covers, Journal

PAGE = 40
# Entries of other groups, faults and parked messages lie between those of a group.
MARGIN = 4
PAGES_MAX = 4

type Place = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where a number of a group was found."""

    position: int
    sequence: int

    def guess(self, number: Number) -> int:
        """Where another number of the group is, if the group has the session to itself."""
        return max(0, self.position + number.sequence - self.sequence)


class Coverage:
    """A worker's bounded memory of covered numbers and what they were used for."""

    def __init__(self, journal: Journal, remembered_max: int = 50_000) -> None:
        self.journal = journal
        self.remembered_max = remembered_max
        self.digests: OrderedDict[Place, str] = OrderedDict()
        self.anchors: OrderedDict[tuple[str, str], Anchor] = OrderedDict()

    def known(self, message: Message) -> str | None:
        """The digest under which the message's number is known to be covered."""
        number = message.number
        return self.digests.get(place(message.session, number)) if number else None

    async def look(self, message: Message) -> str | None:
        """Look once where the message's entry would be; for one without a number, at its marker.

        The first look at a session is a point read, every later one a page.
        """
        number = message.number
        if number is None:
            covered = await self.journal.marked(message.session, message.id)
            return covered.digest if covered else None
        anchor = self.anchors.get((message.session, number.group))
        start = anchor.guess(number) if anchor else number.sequence
        await self.read(message.session, start, PAGE if anchor else 1)
        return self.known(message)

    async def search(self, head: Entry, message: Message) -> str | None:
        """Look for the entry that covers a message of the head's past; None if it is not found.

        It may have been compacted, or lie among more entries of others than are looked at.
        """
        number = message.number
        if number is None:
            return await self.look(message)
        anchor = Anchor(head.position, cursor_of(head, number.group).next - 1)
        for _ in range(PAGES_MAX):
            start = max(0, anchor.guess(number) - MARGIN)
            found = await self.read(message.session, start, PAGE)
            if (digest := self.known(message)) is not None:
                return digest
            anchor = nearest(found, number) or Anchor(max(0, start - PAGE), number.sequence)
        return None

    async def read(self, session: str, start: int, limit: int) -> Mapping[int, Covers]:
        """Read what entries cover, and remember it; the oldest memories are forgotten first."""
        found = await self.journal.covers(session, start, limit)
        for position, covers in found.items():
            for covered in covers:
                number = covered.number
                self.digests[place(session, number)] = covered.digest
                self.anchors[session, number.group] = Anchor(position, number.sequence)
        while len(self.digests) > self.remembered_max:
            self.digests.popitem(last=False)
        while len(self.anchors) > self.remembered_max:
            self.anchors.popitem(last=False)
        return found


def nearest(found: Mapping[int, Covers], number: Number) -> Anchor | None:
    """The number of the group that was found nearest to the one sought."""
    anchors = [
        Anchor(position, covered.number.sequence)
        for position, covers in found.items()
        for covered in covers
        if covered.number.group == number.group
    ]
    return min(anchors, key=lambda a: abs(a.sequence - number.sequence), default=None)


def place(session: str, number: Number) -> Place:
    """Which number of a session; the owner level is no part of it: a number is used once."""
    return (session, number.group, number.sequence)
