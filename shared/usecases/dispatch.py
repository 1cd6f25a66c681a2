"""Pay an outbox: send what is owed, then strike off the regions that took it."""

import logging
from collections.abc import Sequence
from dataclasses import replace

from shared.domain.documents import position_id
from shared.domain.errors import CallerError, OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.domain.outbox import Outbox, Owing, Parcel, in_order
from shared.ports import Journal
from shared.usecases.acknowledge import Acknowledger
from shared.usecases.deliver import Delivered, Delivery
from shared.usecases.outputs import Outputs
from shared.usecases.owe import owe_missing

log = logging.getLogger("lockstep.dispatch")


class Dispatcher:
    """Sends outboxes in the order it is given them."""

    def __init__(
        self, journal: Journal, delivery: Delivery, outputs: Outputs, acknowledger: Acknowledger
    ) -> None:
        self.journal = journal
        self.delivery = delivery
        self.outputs = outputs
        self.acknowledger = acknowledger

    async def dispatch(self, owing: Owing) -> Outbox:
        """Send to the regions owed and acknowledge those that took it; what is left is returned.

        An output that no queue takes is voided, and named in the outbox with the reason; those
        after it follow. Never raises for a region or a store that is out of reach: the debt then
        stays in the journal and somebody's rescue finds it. A crash after sending and before
        acknowledging means that the same bytes are sent again.
        """
        try:
            loaded = await self.outputs.load(owing)
            if loaded is None:
                return owing.outbox.delivered(owing.outbox.regions)
            delivered = await self.delivery.deliver_possible(loaded.outbox)
            if delivered.regions:
                await self.journal.acknowledge(
                    owing.session, owing.document_id, delivered.regions, delivered.refused
                )
        except (CallerError, Unavailable, OutcomeUnknown) as error:
            log.warning("%s of session %r stays owed: %s", owing.document_id, owing.session, error)
            return owing.outbox
        return owing.outbox.delivered(delivered.regions)

    async def dispatch_first(self, entry: Entry, parcels: tuple[Parcel, ...]) -> Entry:
        """Send a new entry's outputs to the regions that lack nothing earlier.

        What every region took at once is acknowledged with the session's next entry, or soon. The
        entry is returned as it is stored from now on, as far as is known.
        """
        due = entry.outbox.only(r for r in entry.outbox.regions if r not in entry.behind)
        if not due.owing:
            return entry
        try:
            delivered = await self.delivery.deliver_possible(Outbox(parcels, due.regions))
            await self.acknowledge(entry, delivered)
        except (CallerError, Unavailable, OutcomeUnknown):
            return entry
        return replace(entry, outbox=entry.outbox.delivered(delivered.regions))

    async def acknowledge(self, entry: Entry, delivered: Delivered) -> None:
        """Strike off the regions that took an entry's outputs, cheaply where all did."""
        if not delivered.regions:
            return
        if delivered.refused or delivered.regions != entry.outbox.regions:
            document_id = position_id(entry.position)
            await self.journal.acknowledge(
                entry.session, document_id, delivered.regions, delivered.refused
            )
        else:
            await self.acknowledger.taken(entry, delivered.regions)

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

    async def send(self, session: str, outbox: Outbox) -> None:
        """Send what no entry owes; what a region misses is owed in the journal.

        Raises OutcomeUnknown when no region surely has it.
        """
        delivered = await self.delivery.deliver_possible(outbox)
        await owe_missing(self.journal, session, outbox, delivered.regions)
