"""Run a message's handler and commit what came of it: a result, or a fault that is kept."""

from dataclasses import replace

from shared.domain import entries, handling
from shared.domain.batch import Appended
from shared.domain.documents import position_id
from shared.domain.entries import Step
from shared.domain.errors import CallerError, Unavailable
from shared.domain.handling import Handlers, OnFault
from shared.domain.journal import Entry, Resolution, regions_behind
from shared.domain.message import Message
from shared.domain.outbox import NOTHING_OWED, Owing
from shared.usecases.commit import Committer
from shared.usecases.dispatch import Dispatcher


class Processor:
    """Turns a message whose turn has come into an entry, and dispatches what the entry owes."""

    def __init__(
        self,
        committer: Committer,
        dispatcher: Dispatcher,
        handlers: Handlers,
        *,
        output_queue: str,
        error_queue: str,
    ) -> None:
        self.committer = committer
        self.dispatcher = dispatcher
        self.handlers = handlers
        self.output_queue = output_queue
        self.error_queue = error_queue

    async def process(
        self,
        head: Entry | None,
        message: Message,
        *,
        from_parked: bool = False,
        resolution: Resolution | None = None,
    ) -> Entry | None:
        """The entry that was committed, or None when another worker was first."""
        step = await self.step(head, message, from_parked=from_parked, resolution=resolution)
        return await self.commit(await self.outcome(step))

    async def step(
        self,
        head: Entry | None,
        message: Message,
        *,
        from_parked: bool = False,
        resolution: Resolution | None = None,
    ) -> Step:
        """What the next entry is made from; older debts are paid first."""
        behind = await self.pay_debts(head)
        attempt = self.committer.new_attempt()
        return Step(head, message, attempt, behind, from_parked, resolution)

    async def commit(self, entry: Entry) -> Entry | None:
        """Commit and dispatch; None when another worker was first."""
        if await self.committer.commit(entry) is not Appended.CREATED:
            return None
        return await self.dispatched(entry)

    async def outcome(self, step: Step) -> Entry:
        """The entry of the handler's result, or of its failure."""
        state = await self.committer.state_of(step.head)
        produced = step.head.produced if step.head else {}
        try:
            handler = self.handlers.of(step.message.type)
            result = handling.run(handler, state, produced, step.message)
        except Exception as error:  # whatever a handler raises is its message's fault
            return self.fault(step, error)
        outbox = self.dispatcher.owed_everywhere(self.output_queue, result.messages)
        return entries.completed(step, state=result.state, outbox=outbox, produced=result.produced)

    def fault(self, step: Step, error: Exception) -> Entry:
        """The entry that keeps a message whose handler failed, with a copy for the error queue.

        A pure handler fails again on every retry, so there is none.
        """
        reason = described(error)
        halts = self.policy(step.message) is OnFault.HALT
        copy = handling.fault_report(step.message, reason)
        outbox = self.dispatcher.owed_everywhere(self.error_queue, [copy])
        return entries.faulted(step, reason=reason, outbox=outbox, halts=halts)

    def policy(self, message: Message) -> OnFault:
        """What the message's type says about faults; an unknown type halts."""
        handler = self.handlers.by_type.get(message.type)
        return handler.on_fault if handler else OnFault.HALT

    async def pay_debts(self, head: Entry | None) -> tuple[str, ...]:
        """Dispatch what earlier entries still owe, before anything follows them.

        The regions still behind are returned. Raises Unavailable when that is every region: the
        next entry must not overtake everywhere.
        """
        if head is None or not regions_behind(head):
            return ()
        owings = [o for o in await self.committer.store.owing_of(head.session) if o.of_entry]
        regions = self.dispatcher.delivery.regions
        behind = await self.dispatcher.pay(owings, regions)
        if set(behind) == set(regions):
            raise Unavailable(f"no region takes the outputs of session {head.session!r}")
        settled = replace(head, outbox=NOTHING_OWED, behind=behind)
        self.committer.heads.learn(head.session, settled)
        return behind

    async def dispatched(self, entry: Entry) -> Entry:
        """Dispatch the entry's outbox to the regions that lack nothing earlier."""
        due = entry.outbox.only(r for r in entry.outbox.regions if r not in entry.behind)
        if due.owing:
            owing = Owing(entry.session, position_id(entry.position), due)
            left = await self.dispatcher.dispatch(owing)
            delivered = set(due.regions) - set(left.regions)
            entry = replace(entry, outbox=entry.outbox.delivered(delivered))
            self.committer.heads.learn(entry.session, entry)
        return entry


def described(error: Exception) -> str:
    """Why a message failed, in one line."""
    text = str(error) or "no message"
    return text if isinstance(error, CallerError) else f"{type(error).__name__}: {text}"
