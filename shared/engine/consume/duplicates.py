"""Recognise messages that were processed before, and find out other content under a used number.

That a message was processed stays true for ever, so it is remembered, and older reads will do. One
page of entries answers for the copies of many messages, because copies come in about the order in
which the work was done.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.domain.decision import cursor_of, is_same_place
from shared.domain.journal import Entry, MessageIdentity
from shared.domain.message import Message, Number
from shared.engine.worker import Recent
from shared.storage.journal import Journal

# Entries that one page reads.
PAGE = 40
# Entries of other groups, faults and parked messages lie between those of a group.
MARGIN = 4
# How many numbers a worker remembers.
REMEMBERED_MAX = 50_000

# A number of a session. A number that a fenced producer did not get to use is used again by the
# next one, so the owner level is part of it.
type SessionNumber = tuple[str, Number]


@dataclass(frozen=True, slots=True)
class ProcessedNumber:
    """The position at which a number was processed, and the digest of its content."""

    position: int
    digest: str


@dataclass(frozen=True, slots=True)
class LastCopy:
    """The position at which the last copy of a group was found."""

    position: int
    sequence: int

    def guess(self, number: Number) -> int:
        """Return the position of another number, if the group has the session to itself."""
        return max(0, self.position + number.sequence - self.sequence)


class Duplicates:
    """A worker's bounded memory of processed numbers, and how it finds others in the journal."""

    def __init__(self, journal: Journal, remembered_max: int = REMEMBERED_MAX) -> None:
        self.journal = journal
        self.processed: Recent[SessionNumber, ProcessedNumber] = Recent(remembered_max)
        # By session and group; without a group, where any copy of the session was found.
        self.last_copies: Recent[tuple[str, str | None], LastCopy] = Recent(remembered_max)

    def recall(self, message: Message) -> str | None:
        """The digest under which the message's number was processed, as far as is remembered."""
        number = message.number
        found = self.processed.get((message.session, number)) if number else None
        if number is None or found is None:
            return None
        self.remember_copy(message.session, number, found.position)
        return found.digest

    async def look(self, message: Message) -> str | None:
        """Read once where the message's entry would be; for one without a number, its marker.

        The first read of a session is a point read, every later one a page. Raises Unavailable.
        """
        # Relaxed reads, at half the price: an entry that one of them misses is found by `decide`.
        number = message.number
        if number is None:
            marker = await self.journal.marker(message.session, message.id, message.source)
            return marker.identity.digest if marker else None
        copy = self.last_copies.get((message.session, number.group))
        nearby = self.last_copies.get((message.session, None))
        if copy is not None:
            start, limit = copy.guess(number), PAGE
        elif nearby is not None:
            start, limit = max(0, nearby.position - MARGIN), PAGE
        else:
            # The first guess: the group has the session to itself, one entry for each number.
            start, limit = number.sequence, 1
        self.remember(message.session, await self.journal.processed(message.session, start, limit))
        return self.recall(message)

    async def search(self, head: Entry, message: Message) -> str | None:
        """The content under the number of a message of the head's past; None if it is compacted.

        By one page if its group has the session to itself, else by halves. Raises Unavailable.
        """
        number = message.number
        if number is None:
            return await self.look(message)
        # The number that faulted is still the cursor's next one, so no search would find it.
        if head.halt is not None and is_same_place(head.halt.number, number):
            return await self.read_content(message, number, head.halt.at)
        below, newest = await self.bounds(head, number)
        start = max(0, newest.guess(number) - MARGIN)
        self.remember(message.session, await self.journal.processed(message.session, start, PAGE))
        digest = self.recall(message)
        if digest is not None:
            return digest
        # By halves: find the entry that moved its group's cursor beyond the number. Between the
        # bounds entries name the cursor from some entry on, and it only grows.
        at = newest.position
        while at - below > 1:
            middle = (below + at) // 2
            entry = await self.journal.entry(message.session, middle)
            # What is compacted lies below everything that is not.
            if entry is not None and cursor_of(entry, number.group).next > number.sequence:
                at = middle
            else:
                below = middle
        return await self.read_content(message, number, at)

    async def bounds(self, head: Entry, number: Number) -> tuple[int, LastCopy]:
        """Return the positions between which a number of the head's past was processed."""
        below, newest = -1, LastCopy(head.position, cursor_of(head, number.group).next - 1)
        kept = await self.journal.cursor(head.session, number.group) if head.has_evicted else None
        # Each time that the cursor was evicted there is a stretch of entries that do not name it.
        for following, position in kept.ends if kept else ():
            if number.sequence < following:
                return below, LastCopy(position, following - 1)
            below = position
        return below, newest

    async def read_content(self, message: Message, number: Number, position: int) -> str | None:
        """The content that an entry holds under the message's number, at any owner level."""
        entry = await self.journal.entry(message.session, position)
        identities = entry.identities if entry else ()
        if entry is not None and entry.quiet is None:
            self.remember(message.session, {position: identities})
        self.remember_copy(message.session, number, position)
        return next((i.digest for i in identities if is_same_place(i.number, number)), None)

    def remember(self, session: str, processed: Mapping[int, Sequence[MessageIdentity]]) -> None:
        for position, identities in processed.items():
            for identity in identities:
                found = ProcessedNumber(position, identity.digest)
                self.processed[session, identity.number] = found

    def remember_copy(self, session: str, number: Number, position: int) -> None:
        """Remember where a copy was found: the next one of its group is probably nearby."""
        for group in (number.group, None):
            self.last_copies[session, group] = LastCopy(position, number.sequence)
