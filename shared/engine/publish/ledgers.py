"""Bind numbers in the ledgers, and settle what earlier operations left unsent.

Numbers and the messages that carry them are stored in one batch, before anything is sent. So a
number that was given is always followed by its very bytes, whoever crashes: the producer's next
operation sends them, or the sweep does.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

from shared.domain import producer
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.outbox import HERE, Outbox, PendingOutbox, sort_for_delivery
from shared.domain.producer import Draft, KeptKeys, Ledger, Numbered, ProducerOptions
from shared.engine.dispatch.deliver import Delivery
from shared.engine.worker import FailureLog, Recent
from shared.ports import StoredLedger
from shared.storage.journal import Journal
from shared.storage.limits import require_fits

# Two producers of one group can collide on a ledger a few times, not for ever.
LEDGER_TRIES = 5
# A remembered ledger that is stale costs a refused write, never correctness.
LEDGERS_MAX = 1_000


class LedgerBook:
    def __init__(self, journal: Journal, delivery: Delivery) -> None:
        self.journal = journal
        self.delivery = delivery
        self.failure_log = FailureLog(delivery.clock)
        self.remembered: Recent[tuple[str, str], StoredLedger] = Recent(LEDGERS_MAX)

    async def bind(
        self,
        session: str,
        drafts: Sequence[Draft],
        options: ProducerOptions,
        *,
        keep_seconds: int = 0,
    ) -> Numbered:
        """Number the drafts and store them with the ledger; they are sent by the caller.

        With `keep_seconds` their ids are remembered for so long, else for a while by the ledger.
        Raises what `number_drafts` and `require_fits` raise, and InvalidMessage for a body that no
        queue takes, and then nothing was stored;
        Unavailable or OutcomeUnknown when the store did not help, or no region took the older ones.
        """
        # A crash before `save` leaves nothing. A crash after it leaves the ledger and a pending
        # outbox of the same messages: a retry of this call gets the same numbers, and any later
        # operation, or the sweep, sends them.
        group = options.producer_group_id
        stored = await self.recall(session, group)
        unanswered: OutcomeUnknown | None = None
        for tried in range(LEDGER_TRIES):
            with keep_unknown(unanswered):
                # The remembered ledger was out of date, or a write had no answer.
                if tried:
                    stored = await self.journal.ledger(session, group)
                before = stored.ledger if stored else Ledger(group)
                # A key that is kept already refuses the write: only then is it worth a read.
                if tried and keep_seconds:
                    before = await self.add_kept(session, before, drafts)
                numbered = producer.number_drafts(
                    before, session, drafts, options, keep_seconds=keep_seconds
                )
                require_fits(numbered.fresh)
                for message in numbered.fresh:
                    message.require_body_within(self.delivery.queues.body_bytes_max)
                is_known = len(numbered.fresh) < len(numbered.messages)
                # Some are numbered already. An earlier try of this call may have done that without
                # an answer, and nothing was sent: what is pending goes out before it counts as
                # published. The ledger changes where a queue refused one, so number them anew.
                if tried and is_known and await self.settle(session, group):
                    continue
                if numbered.ledger == before:
                    return numbered
                try:
                    if await self.save(session, numbered, stored):
                        return numbered
                except OutcomeUnknown as error:
                    # The next round reads the ledger: if it has these drafts, this write did it.
                    unanswered = error
        raise unanswered or Unavailable(f"the ledger of session {session!r} is contended", 1.0)

    async def save(self, session: str, numbered: Numbered, before: StoredLedger | None) -> bool:
        """Store a ledger and its newest messages; False when another producer was first."""
        outbox = self.delivery.address_all(HERE, numbered.fresh)
        expected = before.version if before else None
        version = await self.journal.save_ledger(
            session, numbered.ledger, expected, outbox, numbered.keys
        )
        if version is not None:
            self.remembered[session, numbered.ledger.group] = StoredLedger(numbered.ledger, version)
        return version is not None

    async def add_kept(self, session: str, ledger: Ledger, drafts: Sequence[Draft]) -> Ledger:
        """The ledger, as if it remembered the drafts' ids that are kept beside it."""
        known = {bound.id for bound in ledger.remembered}
        ids = [draft.id for draft in drafts if draft.id not in known]
        kept = [await self.journal.key(session, ledger.group, one) for one in ids]
        return replace(ledger, remembered=(*(b for b in kept if b), *ledger.remembered))

    async def current(self, session: str, options: ProducerOptions) -> Ledger:
        """The ledger as these options may have it.

        Raises ProducerDisconnected or InvalidClientState where they may not, and as `settle`.
        """
        stored = await self.recall(session, options.producer_group_id)
        return producer.take_over_ledger(
            stored.ledger if stored else Ledger(options.producer_group_id), options
        )

    async def recall(self, session: str, group: str) -> StoredLedger | None:
        """The ledger as this process knows it; one it does not know is read, and settled first."""
        # Only the first operation of a process on a session pays for the search: after it, this
        # process knows whether its own operations left anything unsent.
        stored = self.remembered.get((session, group))
        if stored is None and (stored := await self.journal.ledger(session, group)) is not None:
            if await self.settle(session, group):
                stored = await self.journal.ledger(session, group)
            if stored is not None:
                self.remembered[session, group] = stored
        return stored

    async def published(self, session: str, group: str) -> Ledger | None:
        """The group's ledger as the store has it, up to the numbers that some region surely has.

        Nothing is sent or remembered.
        """
        stored = await self.journal.ledger(session, group)
        if stored is None:
            return None
        # Read after the ledger: what was numbered since then is no part of the answer. Only the
        # newest operation may be unsent; those before it were settled first.
        unsent = await self.unsent(session, group)
        starts = (number.sequence for one in unsent if (number := one.outbox.messages[0].number))
        return replace(stored.ledger, next=min([stored.ledger.next, *starts]))

    async def settle(self, session: str, group: str) -> bool:
        """Send what the group has numbered in the session and no region surely has.

        Whether the ledger was changed by that: it forgets what no queue takes. Raises
        OutcomeUnknown when no region takes it.
        """
        # In order, and all of them before anything newer: otherwise a receiver would park the newer
        # messages behind numbers that nobody is sending.
        left = [await self.deliver(group, one) for one in await self.unsent(session, group)]
        return any(outbox.refused for outbox in left)

    async def unsent(self, session: str, group: str) -> list[PendingOutbox]:
        """The operations of the group that no region surely has, in order: one query."""
        found = await self.journal.pending(session, self.delivery.regions)
        return [one for one in sort_for_delivery(found) if self.is_unsent(one, group)]

    def is_unsent(self, pending: PendingOutbox, group: str) -> bool:
        """Return whether it is an operation of the group that every region still waits for."""
        # One region that has the messages is enough for "sent": the others' copies are delivered by
        # their own sweeps, and no later operation has to wait for a region that is unavailable.
        if pending.position is not None or set(pending.outbox.regions) != set(
            self.delivery.regions
        ):
            return False
        numbers = [message.number for message in pending.outbox.messages[:1]]
        return any(number is not None and number.group == group for number in numbers)

    async def deliver(
        self,
        group: str,
        pending: PendingOutbox,
        notify: Callable[[Outbox], None] | None = None,
    ) -> Outbox:
        """Send a group's operation and strike off the regions that took it; what is left.

        A message that its queue will never take is replaced by a tombstone, so that its number is
        no gap, is forgotten by the ledger, and is named in what is left. `notify` is called with
        what is left as soon as one region surely has every message as it is. Raises OutcomeUnknown
        when no region surely has them.
        """
        done = await self.delivery.deliver_possible(pending.outbox)
        refused = done.refused
        if not done.whole:
            # The numbers stay bound to these messages, and the outbox stays pending.
            regions = pending.outbox.regions
            reasons = (f"{region}: {self.delivery.explain(region, HERE)}" for region in regions)
            failures = (self.delivery.last_failures(region, HERE) for region in regions)
            raise OutcomeUnknown(
                "no region surely took the messages; they keep their numbers and will be sent"
                f" ({'; '.join(reasons)})"
            ).because(chain.from_iterable(failures))
        left = pending.outbox.after(done)
        # Forgotten before it is struck off: after a crash in between the outbox is still pending.
        # So it is delivered again, and no retry counts a message as sent which no queue took.
        if refused:
            await self.forget(pending.session, group, refused)
        if notify is not None and not refused:
            notify(left)
        # The messages are safe, so a failure here is none of the caller's: a later operation or the
        # sweep sends the same bytes once more.
        try:
            await self.journal.acknowledge(pending, done)
        except (Unavailable, OutcomeUnknown) as error:
            self.failure_log.add("acknowledging what was published", "the journal", error)
        return left

    async def forget(self, session: str, group: str, ids: Collection[str]) -> None:
        """Forget what no queue takes, so that it never counts as sent. Its number stays used.

        Raises OutcomeUnknown where that is not sure; what was numbered then counts as unsent.
        """
        with keep_unknown(OutcomeUnknown("no queue takes some of it, and that cannot be kept")):
            stored = await self.journal.ledger(session, group)
            if stored is None:
                return
            kept = tuple(bound for bound in stored.ledger.remembered if bound.id not in ids)
            ledger = replace(stored.ledger, remembered=kept)
            keys = [one for one in ids if await self.journal.key(session, group, one)]
            forgotten = KeptKeys(forgotten=tuple(keys))
            if not await self.journal.save_ledger(session, ledger, stored.version, keys=forgotten):
                raise Unavailable(f"the ledger of session {session!r} is contended")


@contextmanager
def keep_unknown(unanswered: OutcomeUnknown | None) -> Iterator[None]:
    """After a write without an answer, what is refused says nothing: the outcome stays unknown."""
    try:
        yield
    except Unavailable:
        if unanswered is None:
            raise
        raise unanswered from None
