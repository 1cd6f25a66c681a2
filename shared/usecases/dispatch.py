"""Pay an outbox: send what is owed, then strike off the regions that took it."""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain.errors import InvalidMessage, OutcomeUnknown, Unavailable
from shared.domain.message import Message
from shared.domain.outbox import NOTHING_OWED, Outbox, Owing, in_order
from shared.ports import Journal
from shared.usecases.deliver import Delivery


class Dispatcher:
    """Sends outboxes in the order it is given them."""

    def __init__(self, journal: Journal, delivery: Delivery) -> None:
        self.journal = journal
        self.delivery = delivery

    async def dispatch(self, owing: Owing) -> Outbox:
        """Send to the regions owed and acknowledge those that took it; what is left is returned.

        Never raises for a region or a store that is out of reach: the debt then stays in the
        journal and somebody's rescue finds it. A crash after sending and before acknowledging
        means that the same bytes are sent again.
        """
        try:
            delivered = await self.delivery.deliver(owing.outbox)
        except InvalidMessage:
            # A namespace with a smaller limit than ours: the debt stays, visibly.
            return owing.outbox
        if delivered:
            try:
                await self.journal.acknowledge(owing.session, owing.document_id, delivered)
            except (Unavailable, OutcomeUnknown):
                return owing.outbox
        return owing.outbox.delivered(delivered)

    async def pay(self, owings: Sequence[Owing], regions: Sequence[str]) -> tuple[str, ...]:
        """Pay a session's debts to these regions, in order; the regions still behind are returned.

        A region that misses one outbox gets none of the later ones: order holds in each region.
        """
        behind: tuple[str, ...] = ()
        for owing in in_order(owings):
            due = owing.outbox.only(r for r in regions if r not in behind)
            if due.owing:
                behind += (await self.dispatch(replace(owing, outbox=due))).regions
        return behind

    def owed_everywhere(self, queue: str, messages: Sequence[Message]) -> Outbox:
        """The outbox that owes these messages to all regions; none at all for no messages."""
        if not messages:
            return NOTHING_OWED
        return self.delivery.to_every_region(queue, messages)
