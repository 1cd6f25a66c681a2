"""Process what was parked, as far as its turn has come."""

from dataclasses import replace

from shared.domain import journal
from shared.domain.journal import Entry, Fenced, Proceed, Status, cursor_of
from shared.domain.message import Message, Number
from shared.usecases.claim import Claims


class Drainer:
    """Takes messages from beside the journal into it."""

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.processor = claims.processor
        self.committer = claims.committer

    async def drain(self, session: str) -> None:
        """Process what was parked behind the remembered head; stops at a fault or a gap."""
        head = self.committer.heads.get(session)
        while head is not None and can_drain(head):
            message = await self.next_parked(head)
            if message is None:
                return
            if not await self.take(head, message):
                self.committer.heads.forget(session)
            head = self.committer.heads.ours(session) or await self.committer.read_head(session)

    async def next_parked(self, head: Entry) -> Message | None:
        """A parked message whose turn has come, if there is one."""
        for group in sorted(head.parked):
            cursor = cursor_of(head, group)
            number = Number(group, cursor.level, cursor.next)
            message = await self.committer.store.parked(head.session, number)
            if message is not None:
                return message
        return None

    async def take(self, head: Entry, message: Message) -> bool:
        """Give a parked message its entry; False when another worker was first."""
        step = replace(await self.processor.step(head, message), from_parked=True)
        match journal.decide(head, message, from_parked=True):
            case Proceed():
                return await self.claims.perform(step) is not None
            case Fenced(level):
                return await self.processor.refuse(step, level) is not None
            case _:
                return False


def can_drain(head: Entry) -> bool:
    """Whether messages wait and nothing but their turn keeps them."""
    return bool(head.parked) and head.halt is None and head.status is not Status.WORKING
