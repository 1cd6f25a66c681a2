"""The decisions of a person on outputs that a queue refuses: retry, send elsewhere, drop.

What is only pending can be dropped, too: an outbox that does not come to its end has one.
"""

from collections.abc import Sequence
from dataclasses import replace

from shared.domain.errors import NotBlocked
from shared.domain.outbox import (
    EVERY_QUEUE,
    Delivered,
    OutputAction,
    OutputDecision,
    PendingOutbox,
)
from shared.engine.dispatch.dispatch import Dispatcher


class Outputs:
    """Decisions about outputs. Each is recorded in the outbox before it is carried out."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.journal = dispatcher.journal
        self.regions = dispatcher.delivery.regions

    async def decide(
        self, session: str, queue: str, decision: OutputDecision, position: int | None = None
    ) -> Sequence[PendingOutbox]:
        """Decide about a session's outputs for one blocked queue; what is still blocked there.

        `position` limits both to one entry's. The queue is named as the outbox names it. What a
        decision cannot bring out now, the sweep tries again in the way decided. After a bounded
        time nothing more is decided: the rest is still blocked, and waits for the next call.
        Outputs of entries that are pending can be dropped as well, those for every queue under the
        name EVERY_QUEUE. Raises NotBlocked where nothing of the session waits for the queue,
        Unavailable or OutcomeUnknown.
        """
        found = await self.blocked_at(session, queue, position)
        is_drop = decision.action is OutputAction.DROP
        waiting = await self.pending_for(session, queue, position) if is_drop else []
        if not found and not waiting:
            state = "blocked at, or pending for," if is_drop else "blocked at"
            raise NotBlocked(f"no outputs of session {session!r} are {state} {queue!r}")
        clock, waits = self.dispatcher.worker.clock, self.dispatcher.worker.policy.waits
        until = clock.now() + waits.bound_seconds
        for pending in found:
            if clock.now() >= until:
                break
            await self.journal.decide(pending, {queue: decision})
            decided = {**pending.outbox.decided, queue: decision}
            await self.carry_out(
                replace(pending, outbox=replace(pending.outbox, decided=decided)), queue, until
            )
        for pending, queues in waiting:
            # Recorded for all of them, whatever the time: who goes on sends what was decided.
            await self.journal.decide(pending, dict.fromkeys(queues, decision))
        if waiting:
            everything = await self.journal.pending(session, self.regions)
            await self.dispatcher.deliver_in_order(everything, self.regions, until)
        left = (
            [one for one, _ in await self.pending_for(session, queue, position)] if waiting else []
        )
        return [*await self.blocked_at(session, queue, position), *left]

    async def blocked_at(
        self, session: str, queue: str, position: int | None
    ) -> list[PendingOutbox]:
        """Return the session's outboxes that some region's queue blocks."""
        return [
            pending
            for pending in await self.journal.blocked(session)
            if position in (None, pending.position)
            and any(queue in reasons for reasons in pending.outbox.blocked.values())
        ]

    async def pending_for(
        self, session: str, queue: str, position: int | None
    ) -> list[tuple[PendingOutbox, list[str]]]:
        """Return the entries' outboxes that regions wait for, with those queues that are meant.

        Raises Unavailable, or OutcomeUnknown where their messages cannot be had now.
        """
        found: list[tuple[PendingOutbox, list[str]]] = []
        for one in await self.journal.pending(session, self.regions):
            # A producer's copies are messages that another region may have processed.
            if one.position is None or position not in (None, one.position):
                continue
            loaded = await self.dispatcher.load_outputs(one)
            names = dict.fromkeys(batch.queue for batch in loaded.batches) if loaded else {}
            if queues := [name for name in names if queue in (name, EVERY_QUEUE)]:
                found.append((one, queues))
        return found

    async def carry_out(self, pending: PendingOutbox, queue: str, until: float) -> None:
        """Send again in every region where the queue is blocked, as was decided."""
        outbox = pending.outbox
        regions = [region for region, reasons in outbox.blocked.items() if queue in reasons]
        if queue == EVERY_QUEUE and outbox.decided[queue].action is OutputAction.DROP:
            # Nobody can say which messages these were, so there is nothing to send in their place.
            done = Delivered(taken=dict.fromkeys(regions, (EVERY_QUEUE,)))
            await self.journal.acknowledge(pending, done)
            return
        self.dispatcher.delivery.resume(outbox.destination_of(queue))
        for region in regions:
            await self.dispatcher.deliver_pending(pending, until, (region, queue))
