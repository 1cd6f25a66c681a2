"""Run a message's handler and commit what came of it: a result, or a fault that is kept."""

from dataclasses import dataclass, replace

from shared.domain import entries, running
from shared.domain.batch import Appended, Carried
from shared.domain.entries import Step
from shared.domain.errors import CallerError, TooLarge, Unavailable
from shared.domain.handling import Handler, Handlers, Kind, OnFault
from shared.domain.journal import Entry, Status, regions_behind
from shared.domain.message import Message
from shared.domain.outbox import NOTHING_OWED, Outbox, Parcel
from shared.domain.reports import VOID_TYPE, fault_report, shortened, void_reason
from shared.domain.running import Before, Result
from shared.usecases.commit import Committer
from shared.usecases.dispatch import Dispatcher
from shared.usecases.outputs import Outputs
from shared.usecases.outside import run_outside

# Older debts that a message pays before its own outputs; a region that lacks more stays behind.
DEBTS_AT_ONCE = 100
# Between two tries of a handler that calls the outside, times the number of the try.
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ending:
    """A finished entry, and its outputs as they are to be sent."""

    entry: Entry
    parcels: tuple[Parcel, ...] = ()


class Processor:
    """Turns a message whose turn has come into an entry, and dispatches what the entry owes."""

    def __init__(
        self,
        committer: Committer,
        dispatcher: Dispatcher,
        outputs: Outputs,
        handlers: Handlers,
        *,
        error_queue: str,
        marker_seconds: int,
    ) -> None:
        self.committer = committer
        self.dispatcher = dispatcher
        self.outputs = outputs
        self.handlers = handlers
        self.error_queue = error_queue
        self.marker_seconds = marker_seconds

    async def process(self, step: Step) -> Entry | None:
        """The entry that was committed, or None when another worker was first."""
        opened = entries.opened(step)
        ending = await self.ending(opened, await self.before(step.head))
        try:
            return await self.commit(step, ending)
        except TooLarge as error:
            return await self.commit(step, self.fault(opened, step.message, error))

    async def step(self, head: Entry | None, message: Message) -> Step:
        """What the next entry is made from; older debts are paid first."""
        behind = await self.pay_debts(head)
        return Step(head, message, self.committer.new_attempt(), behind)

    async def commit(self, step: Step, ending: Ending) -> Entry | None:
        """Commit and dispatch; None when another worker was first."""
        if await self.append(step.head, ending.entry) is not Appended.CREATED:
            return None
        return await self.dispatched(ending)

    async def refuse(self, step: Step, level: int) -> Entry | None:
        """Say in the journal that the message's producer was fenced; None if others were first."""
        reason = f"a producer of owner level {level} rules"
        return await self.commit(step, Ending(entries.refused(entries.opened(step), reason)))

    async def append(self, head: Entry | None, entry: Entry) -> Appended:
        """Commit an entry, with what its batch can carry for the head."""
        acknowledger = self.dispatcher.acknowledger
        says = head is not None and acknowledger.knows_taken(head)
        appended = await self.committer.commit(entry, Carried(says, self.marker_seconds))
        if appended is Appended.CREATED and head is not None:
            acknowledger.was_carried(head)
        return appended

    async def before(self, head: Entry | None) -> Before:
        """What a handler starts from."""
        state = await self.committer.state_of(head)
        return Before(state, head.produced if head else {})

    async def ending(self, opened: Entry, before: Before) -> Ending:
        """What came of the message: its handler's result, or a fault.

        Raises Unavailable or OutcomeUnknown where large outputs could not be kept.
        """
        message = message_in(opened)
        if message.type == VOID_TYPE:
            return Ending(entries.skipped(opened, void_reason(message)))
        try:
            result = await self.run(self.handlers.of(message.type), before, message)
        except Exception as error:
            return self.fault(opened, message, error)
        try:
            outbox = await self.outputs.keep(message, opened.attempt, result)
        except TooLarge as error:
            return self.fault(opened, message, error)
        parcels = self.outputs.inline(result).parcels
        return Ending(entries.completed(opened, result, outbox), parcels)

    async def run(self, handler: Handler, before: Before, message: Message) -> Result:
        """Run a handler; one that calls the outside is given several tries."""
        if handler.kind in (Kind.PURE, Kind.DETERMINISTIC):
            return running.run(handler, before, message)
        for tried in range(1, handler.attempts):
            try:
                return await run_outside(handler, before, message)
            except CallerError:
                raise
            except Exception:
                await self.committer.clock.sleep(RETRY_SECONDS * tried)
        return await run_outside(handler, before, message)

    async def pass_through(self, message: Message) -> str | None:
        """Run an idempotent handler without a journal; the answer is why it failed, or None.

        Outputs are sent before the message is settled, and may be sent again with it. Raises
        OutcomeUnknown when no region surely has them.
        """
        try:
            handler = self.handlers.of(message.type)
            outbox = self.outputs.inline(await self.run(handler, Before(), message))
            reason = None
        except Exception as error:
            reason = described(error)
            outbox = self.owed_errors(message, reason)
        if outbox.owing:
            await self.dispatcher.send(message.session, outbox)
        return reason

    def fault(self, opened: Entry, message: Message, error: Exception) -> Ending:
        """The entry that keeps a message whose handler failed, with a copy for the error queue."""
        reason = described(error)
        halts = self.policy(message) is OnFault.HALT
        outbox = self.owed_errors(message, reason)
        return Ending(
            entries.faulted(opened, reason=reason, outbox=outbox, halts=halts), outbox.parcels
        )

    def owed_errors(self, message: Message, reason: str) -> Outbox:
        """A copy of the message for the error queue of every region."""
        copy = fault_report(message, reason)
        return self.dispatcher.delivery.to_every_region(self.error_queue, [copy])

    def kind_of(self, message: Message) -> Kind:
        """The kind of the message's handler."""
        return self.handlers.kind_of(message.type)

    def policy(self, message: Message) -> OnFault:
        """What the message's type says about faults; an unknown type halts."""
        handler = self.handlers.by_type.get(message.type)
        return handler.on_fault if handler else OnFault.HALT

    async def pay_debts(self, head: Entry | None) -> tuple[str, ...]:
        """Dispatch what earlier entries still owe, before anything follows them.

        The regions still behind are returned. Raises Unavailable when that is every region: the
        next entry must not overtake everywhere.
        """
        if head is None:
            return ()
        if self.dispatcher.acknowledger.knows_taken(head):
            head = replace(head, outbox=NOTHING_OWED)
        if not regions_behind(head):
            return ()
        regions = self.dispatcher.delivery.regions
        owings = await self.committer.store.owing_of(head.session, regions, limit=DEBTS_AT_ONCE)
        behind = await self.dispatcher.pay([o for o in owings if o.of_entry], regions)
        if len(owings) == DEBTS_AT_ONCE:
            # There may be more: whoever was owed any of these is behind until a look finds none.
            behind = tuple(r for r in regions if any(r in o.outbox.regions for o in owings))
        if set(behind) == set(regions):
            raise Unavailable(f"no region takes the outputs of session {head.session!r}")
        settled = replace(head, outbox=NOTHING_OWED, behind=behind)
        self.committer.heads.learn(head.session, settled)
        return behind

    async def dispatched(self, ending: Ending) -> Entry:
        """Dispatch a committed entry's outputs."""
        entry = await self.dispatcher.dispatch_first(ending.entry, ending.parcels)
        if entry is not ending.entry:
            self.committer.heads.learn(entry.session, entry, is_ours=True)
        return entry


def message_in(opened: Entry) -> Message:
    """The message of an entry that has not ended."""
    if opened.message is None or opened.status is not Status.WORKING:
        raise ValueError(f"entry {opened.position} of {opened.session!r} holds no message")
    return opened.message


def described(error: Exception) -> str:
    """Why a message failed, in one line."""
    text = str(error) or "no message"
    named = text if isinstance(error, CallerError) else f"{type(error).__name__}: {text}"
    return shortened(named)
