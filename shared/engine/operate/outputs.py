"""The decisions of a person on outputs that a queue refuses: retry, send elsewhere, drop."""

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
    """Decisions about blocked outputs. Each is recorded in the outbox before it is carried out."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher = dispatcher
        self.journal = dispatcher.journal

    async def decide(
        self, session: str, queue: str, decision: OutputDecision, position: int | None = None
    ) -> Sequence[PendingOutbox]:
        """Decide about a session's outputs for one blocked queue; what is still blocked there.

        `position` limits it to one entry's. The queue is named as the outbox names it. What a
        decision cannot bring out now, the sweep tries again in the way decided. After a bounded
        time nothing more is decided: the rest is still blocked, and waits for the next call. Raises
        NotBlocked where nothing of the session is blocked at the queue, Unavailable or
        OutcomeUnknown.
        """
        found = [
            pending
            for pending in await self.journal.blocked(session)
            if position in (None, pending.position)
            and any(queue in reasons for reasons in pending.outbox.blocked.values())
        ]
        if not found:
            raise NotBlocked(f"no outputs of session {session!r} are blocked at {queue!r}")
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
        return [
            pending
            for pending in await self.journal.blocked(session)
            if any(queue in reasons for reasons in pending.outbox.blocked.values())
        ]

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
