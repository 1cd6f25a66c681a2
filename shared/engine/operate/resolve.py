"""The decisions of a person on what needs attention, carried out and recorded with who and why."""

import json
import logging
from collections.abc import Sequence
from dataclasses import replace

from shared.domain import next_entry
from shared.domain.decision import cursor_of
from shared.domain.errors import (
    InvalidMessage,
    InvalidState,
    Misconfigured,
    NotAllowed,
    NotHalted,
    NotMissing,
    NotOpen,
    SessionEnded,
    Unavailable,
    UnknownSession,
    UnreadableState,
)
from shared.domain.handler import HandlerInput, StateModel, keep_captured
from shared.domain.journal import (
    Entry,
    ModelVersion,
    Status,
)
from shared.domain.message import Message, Number, derive_id
from shared.domain.outbox import OutputAction, OutputDecision, OutputsLeft, PendingOutbox
from shared.domain.reports import SKIPPED_BODY, SKIPPED_TYPE
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.domain.saga.plan import key_of
from shared.domain.steps import (
    RESULTS_INLINE_BYTES_MAX,
    KnownSteps,
    unknown_steps,
    with_result,
    without_last_failed,
    without_results,
    without_step,
)
from shared.engine.consume.consume import AGAIN, Consumer
from shared.engine.handle.handle import keep_state, parse_state, require_known
from shared.engine.handle.raised import describe_error
from shared.engine.operate.compact import fit_batch
from shared.engine.operate.outputs import Outputs
from shared.ports import SessionNeed

log = logging.getLogger("lockstep.resolve")

# Another worker can be first at the end of the journal a few times, not for ever.
TRIES = 10
# How long a handler may still run whose claim is in the way.
CLAIMED_SECONDS = 5.0
# One entry names every number that it skips.
SKIPPED_NUMBERS_MAX = 1_000
# A transactional batch takes 100 operations.
REMOVED_AT_ONCE = 100
# Outboxes, which take a moment each: a caller waits for them.
DELIVERED_AT_ONCE = 50


class Resolver:
    """Carries out decisions. What was parked is drained before the answer."""

    def __init__(self, consumer: Consumer, outputs: Outputs) -> None:
        self.consumer = consumer
        self.dispatcher = consumer.dispatcher
        self.outputs = outputs
        self.worker = consumer.worker
        self.journal = consumer.journal

    async def decide(
        self, session: str, decision: ResolutionRequest
    ) -> Entry | OutputsLeft | Sequence[PendingOutbox]:
        """Carry out any decision: the entry that records it, or what is left of outputs.

        Raises as `resolve`, `decide_outputs` and `deliver` do.
        """
        if decision.action is ResolutionAction.DELIVER:
            return await self.deliver(session, decision)
        if decision.queue is not None:
            return await self.decide_outputs(session, decision.queue, decision)
        return await self.resolve(session, decision)

    async def resolve(self, session: str, decision: ResolutionRequest) -> Entry:
        """The entry that records the decision.

        A message that fails again halts the session again, in the entry returned. A state may be
        set whether the session is halted or not; a halted one stays so, until its message is run
        again on that state, or skipped. Raises InvalidState for a state that is not its model's;
        UnknownSession; NotHalted, NotMissing or NotOpen where what the decision is about does not
        stand still (any more); NotOpen or NotAllowed for what cannot be erased or ended;
        SessionEnded for what a session no longer takes that has; UnknownType for a corrected type
        without a handler; Unavailable when other workers kept being first.
        """
        others = {
            ResolutionAction.CLOSE: self.close,
            ResolutionAction.SET_STATE: self.set_state,
            ResolutionAction.SKIP_NUMBER: self.skip_numbers,
            ResolutionAction.ERASE: self.erase,
            ResolutionAction.END: self.end,
        }
        for _ in range(TRIES):
            entry = await others.get(decision.action, self.resolve_fault)(session, decision)
            if entry is not None:
                await self.consumer.drain(session)
                return entry
        raise Unavailable(f"session {session!r} is contended", 1.0)

    async def decide_outputs(
        self, session: str, queue: str, decision: ResolutionRequest
    ) -> OutputsLeft:
        """Decide about the outputs for a queue; the regions that still miss some.

        Raises NotBlocked, Unavailable or OutcomeUnknown.
        """
        action = OutputAction(decision.action.value)
        decided = OutputDecision(action, decision.who, decision.why, decision.to)
        blocked, recorded = set[str](), set[str]()
        for left in await self.outputs.decide(session, queue, decided, decision.at):
            recorded |= {*left.outbox.regions}
            for region, reasons in left.outbox.blocked.items():
                if queue not in reasons:
                    continue
                failures = self.dispatcher.delivery.last_failures(
                    region, left.outbox.destination_of(queue)
                )
                # Nobody misses what is dropped. What was not reached in the time is not decided.
                goes_on = left.outbox.decided.get(queue) == decided and (
                    action is OutputAction.DROP
                    or any(not isinstance(one, Misconfigured) for one in failures)
                )
                (recorded if goes_on else blocked).add(region)
        return OutputsLeft(tuple(sorted(blocked)), tuple(sorted(recorded - blocked)))

    async def deliver(self, session: str, decision: ResolutionRequest) -> tuple[PendingOutbox, ...]:
        """Deliver now what regions miss of a session; the outboxes that some still wait for.

        Each says how much a region has. After a bounded time the rest is left to the next call, or
        to the sweep, and so is what a worker sends just now. Nothing is decided, so nothing is
        recorded: who asked stands in the log. Raises Unavailable.
        """
        log.info("%r delivers in session %r: %s", decision.who, session, decision.why)
        regions = self.dispatcher.delivery.regions
        until = self.worker.clock.now() + self.worker.policy.waits.bound_seconds
        lagging: tuple[str, ...] = ()
        while pending := await self.journal.pending(session, regions, limit=DELIVERED_AT_ONCE):
            if lagging or self.worker.clock.now() >= until:
                return tuple(pending)
            lagging = await self.dispatcher.deliver_in_order(pending, regions, until)
        return ()

    async def resolve_fault(self, session: str, decision: ResolutionRequest) -> Entry | None:
        """Resolve on the stored head; None when another worker was first."""
        head = await self.worker.read_head(session)
        fault, message = await self.read_fault(session, head, decision)
        steps = decide_steps(fault, decision)
        made_from = replace(
            await self.dispatcher.prepare(head, message),
            steps=steps,
            resolution=replace(decision.resolution, at=fault.position),
            sent_digest=fault.identities[-1].digest,
        )
        if decision.action is ResolutionAction.SKIP:
            entry = next_entry.skip(next_entry.open_entry(made_from), decision.why)
            return await self.dispatcher.append(head, entry)
        if decision.type is not None:
            self.worker.handlers.of(decision.type)
        corrected = message
        if decision.action is ResolutionAction.EDIT:
            body, kind = decision.body or message.body, decision.type or message.type
            corrected = replace(message, body=body, type=kind)
        # What faulted may have ended workers, and no delivery would tell that it does so again.
        return await self.consumer.give_entry(replace(made_from, message=corrected), as_try=AGAIN)

    async def set_state(self, session: str, decision: ResolutionRequest) -> Entry | None:
        """Give the session another state; None when another worker was first."""
        head = require_ended(session, await self.worker.read_head(session))
        if decision.at is not None and (head.halt is None or decision.at != head.halt.at):
            raise NotHalted(f"session {session!r} is not halted by entry {decision.at}")
        if head.is_ended:
            raise SessionEnded(f"session {session!r} has ended: its state stays as it is")
        declared = await self.model_of(head, decision)
        current = ModelVersion(declared.name, declared.version)
        try:
            # As strictly as it will be read: a misspelt field must not become a default.
            given = HandlerInput(json.loads(decision.body or b""), model=current)
            if not isinstance(given.state, dict) or not given.state:
                raise UnreadableState("it is no JSON object with fields")
            state = keep_state(declared, parse_state(declared, given), "a person")
        except InvalidState:
            raise
        except BaseException as error:
            # Whatever the validators and serializers of the model raise: nothing here waits.
            why = describe_error(error)
            raise InvalidState(f"this is no state of {declared.name!r}: {why}") from error
        lagging = await self.dispatcher.catch_up(head)
        entry = next_entry.set_state(
            head, state, current, self.worker.new_attempt(), lagging, decision.resolution
        )
        return await self.dispatcher.append(head, entry)

    async def erase(self, session: str, decision: ResolutionRequest) -> Entry | None:
        """Remove all that a session holds of a person; None when another worker was first.

        What is left tells copies apart and nobody's data: numbers, ids, digests, and this entry.
        The same decision again finds its entry, and finishes it. Raises NotOpen where something of
        the session waits or it was erased by another decision, NotAllowed for a saga's.
        """
        if key_of(session) is not None:
            # Its state is what keeps it from starting twice.
            raise NotAllowed("the journal of a saga is not erased")
        head = await self.worker.read_head(session)
        await self.require_settled(session, head)
        head = require_ended(session, head)
        before = head.resolution
        if before is not None and before.action == ResolutionAction.ERASE:
            # Of several at once one wrote its entry. A crash after it left older ones.
            await self.remove_before(head)
            if before != decision.resolution:
                raise NotOpen(f"session {session!r} was erased by {before.who!r}: {before.why}")
            return head
        lagging = await self.dispatcher.catch_up(head)
        attempt = self.worker.new_attempt()
        entry = next_entry.erase(head, attempt, lagging, decision.resolution)
        if await self.dispatcher.append(head, entry) is None:
            return None
        await self.remove_before(entry)
        return entry

    async def end(self, session: str, decision: ResolutionRequest) -> Entry | None:
        """End a session: it takes nothing new any more; None when another worker was first.

        The same decision again finds its entry. Raises NotOpen where something of the session
        waits, SessionEnded where it has ended otherwise, NotAllowed for a saga's.
        """
        if key_of(session) is not None:
            raise NotAllowed("a saga ends its own session")
        head = require_ended(session, await self.worker.read_head(session))
        await self.require_settled(session, head)
        if head.is_ended:
            if head.resolution == decision.resolution:
                return head
            raise SessionEnded(f"session {session!r} has ended already")
        lagging = await self.dispatcher.catch_up(head)
        entry = next_entry.end(
            head, self.worker.new_attempt(), lagging, resolution=decision.resolution
        )
        return await self.dispatcher.append(head, entry)

    async def remove_before(self, entry: Entry) -> None:
        """Remove every older entry of a session."""
        # A crash leaves some, and the decision may be repeated. They go oldest first, as in
        # compaction: a worker that slept on one of them finds it gone.
        while True:
            oldest = await self.journal.oldest_entries(entry.session, REMOVED_AT_ONCE)
            free = [one.entry for one in oldest if one.entry.position < entry.position]
            if not free:
                return
            positions, states = fit_batch(free, REMOVED_AT_ONCE)
            await self.journal.compact(entry.session, positions, {}, states)

    async def require_settled(self, session: str, head: Entry | None) -> None:
        """Raise NotOpen where an older entry is still needed: its data would have to stay."""
        if head is not None and head.halt is not None:
            raise NotOpen(f"session {session!r} is halted: skip, retry or edit its fault first")
        if head is not None and head.parked:
            raise NotOpen(
                f"messages of session {session!r} are parked: let them be processed first"
            )
        regions = self.dispatcher.delivery.regions
        if await self.journal.pending(session, regions, limit=1):
            raise NotOpen(f"outputs of session {session!r} are pending: deliver them first")
        if await self.journal.blocked(session):
            raise NotOpen(f"outputs of session {session!r} are blocked: decide about them first")
        need = {SessionNeed.RESOLUTION}
        if await self.journal.signs(need, regions, session=session, older_than_seconds=0, limit=1):
            raise NotOpen(f"session {session!r} has what asks for a person: close it first")

    async def model_of(self, head: Entry, decision: ResolutionRequest) -> StateModel:
        """The model that the session's next state is of; raises InvalidState where nobody knows.

        Raises NewerState for a newer version than this app knows.
        """
        handlers = self.worker.handlers.by_type
        stored = (await self.worker.input_after(head)).model
        for handler in handlers.values():
            if stored is not None and handler.state.name == stored.name:
                require_known(handler.state, stored)
                return handler.state
        if head.halt is not None:
            _, message = await self.read_fault(head.session, head, decision)
            if message.type in handlers:
                return handlers[message.type].state
        raise InvalidState(f"the model of the state of {head.session!r} is not known here")

    async def read_fault(
        self, session: str, head: Entry | None, decision: ResolutionRequest
    ) -> tuple[Entry, Message]:
        """The fault that stops the session, and the message it holds."""
        if head is None or head.halt is None:
            raise NotHalted(f"session {session!r} is not halted")
        if decision.at not in (None, head.halt.at):
            raise NotHalted(f"session {session!r} is halted by entry {head.halt.at}")
        fault = await self.journal.entry(session, head.halt.at)
        if fault is None or fault.status is not Status.FAULTED or fault.message is None:
            raise Unavailable(f"the fault of session {session!r} cannot be read", 1.0)
        return fault, fault.message

    async def skip_numbers(self, session: str, decision: ResolutionRequest) -> Entry | None:
        """Go on after numbers that never came; None when another worker was first."""
        last = Number(decision.group or "", 0, decision.number or 0)
        head = await self.worker.read_head(session)
        waits = await self.journal.first_parked(session, last.group)
        if head is None or waits is None or last.sequence >= waits:
            raise NotMissing(f"nothing waits for number {last.sequence} of group {last.group!r}")
        head = await self.worker.with_cursors(head, [last.group])
        cursor = cursor_of(head, last.group)
        if last.sequence < cursor.next:
            raise NotMissing(f"number {last.sequence} of group {last.group!r} came or was skipped")
        if head.halt is not None:
            raise NotMissing(f"session {session!r} waits for its fault at entry {head.halt.at}")
        if head.status is Status.WORKING:
            raise Unavailable(f"session {session!r} is running a handler", CLAIMED_SECONDS)
        if last.sequence - cursor.next >= SKIPPED_NUMBERS_MAX:
            raise InvalidMessage(
                f"from {cursor.next} on at most {SKIPPED_NUMBERS_MAX} numbers are skipped at once"
            )
        named = derive_id(session, last.group, str(last.sequence), "skipped")
        number = replace(last, level=cursor.level)
        missing = Message(named, session, SKIPPED_TYPE, SKIPPED_BODY, number)
        made_from = await self.dispatcher.prepare(head, missing)
        entry = next_entry.skip_numbers(
            replace(made_from, resolution=decision.resolution), cursor.next, decision.why
        )
        return await self.dispatcher.append(head, entry)

    async def close(self, session: str, decision: ResolutionRequest) -> Entry | None:
        """Take note of an entry that asks for a person; None where it was written meanwhile."""
        head = await self.worker.read_head(session)
        if head is not None and head.halt is not None and head.halt.at == decision.at:
            # Closed, a fault would stop its session unseen.
            raise NotOpen(f"entry {decision.at} is a fault: retry, edit or skip it")
        stored = await self.journal.stored_entry(session, decision.at or 0)
        entry = stored.entry if stored else None
        if stored is None or entry is None or not (entry.alert or entry.outbox.refused):
            raise NotOpen(f"entry {decision.at} of session {session!r} asks for nobody")
        if entry.closed is not None:
            raise NotOpen(f"entry {entry.position} was closed by {entry.closed.who!r}")
        closed = decision.resolution
        is_closed = await self.journal.close(session, entry.position, stored.version, closed)
        return replace(entry, closed=closed) if is_closed else None


def decide_steps(fault: Entry, decision: ResolutionRequest) -> KnownSteps:
    """Return what is known of the steps of a fault's message after a decision about it.

    Raises NotOpen where the step is not unknown, or where one is and the decision would have it
    repeated without saying so; InvalidMessage for a result that is no JSON, or too large.
    """
    steps, unknown = fault.steps, unknown_steps(fault.steps)
    if decision.step is not None:
        if decision.step not in unknown:
            raise NotOpen(f"nobody asks whether step {decision.step!r} happened")
        if decision.action is ResolutionAction.NOT_HAPPENED:
            return without_step(steps, decision.step)
        try:
            result = keep_captured(decision.step, json.loads(decision.body or b"null"))
        except (ValueError, RecursionError) as error:
            raise InvalidMessage(f"the result of step {decision.step!r} is no JSON") from error
        if len(json.dumps(result)) > RESULTS_INLINE_BYTES_MAX:
            raise InvalidMessage(
                f"the result of step {decision.step!r} has over {RESULTS_INLINE_BYTES_MAX} bytes"
            )
        return with_result(steps, decision.step, result)
    if decision.action is ResolutionAction.SKIP:
        return without_results(steps)
    if unknown:
        raise NotOpen(
            f"step {unknown[0]!r} may have happened: say happened or not-happened, or skip"
        )
    return without_last_failed(steps)


def require_ended(session: str, head: Entry | None) -> Entry:
    """The newest entry; raises UnknownSession for none, and Unavailable for a claim."""
    if head is None:
        raise UnknownSession(f"there is nothing of session {session!r}")
    if head.status is Status.WORKING:
        raise Unavailable(f"session {session!r} is running a handler", 1.0)
    return head
