"""One session walked from its first message to its head: every break of the chain, by its kind.

An effect says its place and the chain of everything before it. So an effect that was not seen can
be told from one that did not take place: the next effect has it in its chain, or has not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from chaos import chain
from chaos.judge.history import Head, Seen, Sent


class Break(StrEnum):
    """What is wrong with a message of a session."""

    LOST = "it has no effect"
    UNSEEN = "its state has no output"
    DISPLACED = "it does not follow what was sent before it"
    DOUBLED = "it took effect more than once"


type Broken = tuple[Break, str]


@dataclass
class Walk:
    """Where the walk is: the place and the chain that the next effect builds on."""

    place: int = 0
    chain: str = chain.START
    unseen: list[Sent] = field(default_factory=list)
    repeats: dict[int, Seen] = field(default_factory=dict)

    def effect(self, sent: Sent, seen: Seen) -> Iterator[Broken]:
        """Take the next message that was seen; and decide about those before it that were not."""
        hidden = self.after(self.unseen)
        if (seen.place, seen.chain) == following(hidden, sent):
            yield from ((Break.UNSEEN, str(one)) for one in self.unseen)
        elif (seen.place, seen.chain) == following(Head(self.place, self.chain), sent):
            yield from ((Break.LOST, str(one)) for one in self.unseen if one.is_safe)
        else:
            yield Break.DISPLACED, str(sent)
        self.unseen = []

    def go_on(self, first: Seen, repeats: Iterable[Seen]) -> None:
        """Build on a message's effect, and on what took effect once more right after it.

        What was met before, out of its turn, is not built on again.
        """
        self.repeats |= {seen.place: seen for seen in repeats}
        after: Seen | None = first if first.place >= self.place else None
        while after is not None:
            self.place, self.chain = after.place + 1, after.chain
            after = self.repeats.get(self.place)

    def end(self, session: str, head: Head | None) -> Iterator[Broken]:
        """Hold what was walked over against the session's state."""
        here, hidden = Head(self.place, self.chain), self.after(self.unseen)
        stands = head or Head(0, chain.START)
        if stands == here:
            yield from ((Break.LOST, str(one)) for one in self.unseen if one.is_safe)
        elif stands == hidden:
            yield from ((Break.UNSEEN, str(one)) for one in self.unseen)
        elif stands.place > hidden.place:
            yield Break.DOUBLED, f"{session}: {stands.place} applied, {hidden.place} sent"
        elif stands.place < here.place:
            yield Break.LOST, f"{session}: {stands.place} in its state, {here.place} seen"
        else:
            yield Break.DISPLACED, f"{session}: its state has another chain"

    def after(self, messages: Iterable[Sent]) -> Head:
        """Where the session is after these, if they took effect unseen."""
        head = Head(self.place, self.chain)
        for sent in messages:
            head = Head(head.place + 1, chain.link(head.chain, sent.id, sent.digest))
        return head


def following(head: Head, sent: Sent) -> tuple[int, str]:
    """The place and the chain of a message's effect, if it is the next one."""
    return head.place, chain.link(head.chain, sent.id, sent.digest)


def walk(
    session: str, messages: Sequence[Sent], copies: Mapping[str, Sequence[Seen]], head: Head | None
) -> Iterator[Broken]:
    """Name everything that is wrong with a session's effects."""
    at = Walk()
    for sent in messages:
        effects = {(seen.place, seen.chain): seen for seen in copies.get(sent.id, ())}
        if not effects:
            at.unseen.append(sent)
            continue
        first, *repeats = sorted(effects.values(), key=lambda seen: seen.place)
        yield from at.effect(sent, first)
        yield from ((Break.DOUBLED, str(sent)) for _ in repeats)
        at.go_on(first, repeats)
    yield from at.end(session, head)
