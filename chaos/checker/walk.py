"""One session walked from its first message to its head: every break of the chain, by its kind.

An effect says its place and the chain of everything before it. So an effect that was not seen can
be told from one that did not take place: the next effect has it in its chain, or has not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from chaos.checker.history import EffectCopy, SentMessage, SessionHead
from chaos.messages import CHAIN_START, extend_chain


class ChainBreak(StrEnum):
    LOST = "it has no effect"
    UNSEEN = "its state has no output"
    DISPLACED = "it does not follow what was sent before it"
    DOUBLED = "it took effect more than once"


type BrokenLink = tuple[ChainBreak, str]


@dataclass
class SessionWalk:
    """Where the walk is: the place and the chain that the next effect builds on."""

    place: int = 0
    chain: str = CHAIN_START
    unseen: list[SentMessage] = field(default_factory=list)
    repeats: dict[int, EffectCopy] = field(default_factory=dict)

    def take_effect(self, sent: SentMessage, seen: EffectCopy) -> Iterator[BrokenLink]:
        """Take the next message that was seen; and decide about those before it that were not."""
        hidden = self.after(self.unseen)
        if (seen.place, seen.chain) == next_link(hidden, sent):
            yield from ((ChainBreak.UNSEEN, str(one)) for one in self.unseen)
        elif (seen.place, seen.chain) == next_link(SessionHead(self.place, self.chain), sent):
            yield from ((ChainBreak.LOST, str(one)) for one in self.unseen if one.is_safe)
        else:
            yield ChainBreak.DISPLACED, str(sent)
        self.unseen = []

    def go_on(self, first: EffectCopy, repeats: Iterable[EffectCopy]) -> None:
        """Build on a message's effect, and on what took effect once more right after it.

        What was applied before, out of its turn, is not built on again.
        """
        self.repeats |= {seen.place: seen for seen in repeats}
        after: EffectCopy | None = first if first.place >= self.place else None
        while after is not None:
            self.place, self.chain = after.place + 1, after.chain
            after = self.repeats.get(self.place)

    def end(self, session: str, head: SessionHead | None) -> Iterator[BrokenLink]:
        here, hidden = SessionHead(self.place, self.chain), self.after(self.unseen)
        stands = head or SessionHead(0, CHAIN_START)
        if stands == here:
            yield from ((ChainBreak.LOST, str(one)) for one in self.unseen if one.is_safe)
        elif stands == hidden:
            yield from ((ChainBreak.UNSEEN, str(one)) for one in self.unseen)
        elif stands.place > hidden.place:
            yield ChainBreak.DOUBLED, f"{session}: {stands.place} applied, {hidden.place} sent"
        elif stands.place < here.place:
            yield ChainBreak.LOST, f"{session}: {stands.place} in its state, {here.place} seen"
        else:
            yield ChainBreak.DISPLACED, f"{session}: its state has another chain"

    def after(self, messages: Iterable[SentMessage]) -> SessionHead:
        head = SessionHead(self.place, self.chain)
        for sent in messages:
            head = SessionHead(head.place + 1, extend_chain(head.chain, sent.id, sent.digest))
        return head


def next_link(head: SessionHead, sent: SentMessage) -> tuple[int, str]:
    return head.place, extend_chain(head.chain, sent.id, sent.digest)


def walk_session(
    session: str,
    messages: Sequence[SentMessage],
    copies: Mapping[str, Sequence[EffectCopy]],
    head: SessionHead | None,
) -> Iterator[BrokenLink]:
    at = SessionWalk()
    for sent in messages:
        effects = {(seen.place, seen.chain): seen for seen in copies.get(sent.id, ())}
        if not effects:
            at.unseen.append(sent)
            continue
        first, *repeats = sorted(effects.values(), key=lambda seen: seen.place)
        yield from at.take_effect(sent, first)
        yield from ((ChainBreak.DOUBLED, str(sent)) for _ in repeats)
        at.go_on(first, repeats)
    yield from at.end(session, head)
