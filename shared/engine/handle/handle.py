"""Run a message's handler, and build the entry that keeps what came of it: a result, or a fault.

Building an entry reads and writes nothing: outputs too large for the entry are named in the Ending,
and they are staged before the entry is committed.
"""

import asyncio
import inspect
import json
import marshal
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial
from threading import get_ident
from typing import Any

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from shared.domain import next_entry
from shared.domain.errors import (
    CallerError,
    InvalidBody,
    InvalidState,
    LockstepError,
    NewerState,
    NotAllowed,
    NotStorable,
    UnreadableState,
)
from shared.domain.handler import (
    REMINDERS_MAX,
    Context,
    Handled,
    Handler,
    HandlerInput,
    HandlerResult,
    Kind,
    NoState,
    OnFault,
    Output,
    StateModel,
    require_storable,
)
from shared.domain.journal import Entry, Json, KeptInput, ModelVersion, Produced, Status
from shared.domain.message import (
    BODY_BYTES_MAX,
    HERE_PREFIX,
    OUTPUTS_PREFIX,
    Message,
    Number,
    derive_id,
)
from shared.domain.outbox import (
    ERRORS,
    HERE,
    NO_OUTBOX,
    OUTPUTS,
    DestinationBatch,
    Outbox,
    Rerun,
    Staged,
    address,
)
from shared.domain.reports import (
    TOMBSTONE_TYPE,
    UNREADABLE_TYPE,
    explain_tombstone,
    explain_unreadable,
    report_fault,
    shorten,
)
from shared.domain.steps import StepError, StepRunner, StepUnknown
from shared.domain.trace import Trace
from shared.domain.values import (
    changed_fields,
    explain_losses,
    has_sets,
    make_document,
    sort_sets,
)
from shared.engine.handle.limit import (
    WATCHDOG,
    Finish,
    HandlerCutOff,
    HandlerThreads,
    TookTooLong,
    finish_within,
)
from shared.engine.handle.raised import (
    HandlerFailed,
    describe_error,
    describe_refusal,
    find_frames,
)
from shared.engine.worker import Worker
from shared.storage.documents import digest_batches
from shared.storage.limits import fits_entry, split_outputs

# Between two tries of a handler that calls the outside, times the number of the try.
RETRY_SECONDS = 1.0
# Before it is worth asking again whether newer code has come.
NEWER_CODE_SECONDS = 5.0
# How long a pure handler may take where no policy says so.
PURE_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Ending:
    """An entry that has ended, and its outputs as they are to be sent.

    `staged` are outputs that do not fit into the entry: they are staged before it is committed.
    """

    entry: Entry
    batches: tuple[DestinationBatch, ...] = ()
    staged: tuple[DestinationBatch, ...] = ()


class HandlerRunner:
    def __init__(
        self,
        worker: Worker,
        regions: tuple[str, ...],
        body_bytes_max: int,
        finish: Finish = finish_within,
    ) -> None:
        self.handlers = worker.handlers
        self.finish = finish
        self.clock = worker.clock
        self.handler_seconds = worker.policy.handler_seconds
        self.pure_seconds = worker.policy.pure_seconds
        self.threads = HandlerThreads()
        self.reply_queues = worker.policy.reply_queues
        self.keeps_inputs = worker.policy.keeps_inputs
        self.regions = regions
        self.body_bytes_max = body_bytes_max

    async def run(self, opened: Entry, message: Message, given: HandlerInput) -> Ending:
        """Run the handler of an opened entry's message; whatever it raises becomes a fault."""
        # A tombstone stands for an output that no queue took. It uses up the number, so that what
        # comes after it is not parked behind a gap.
        if message.type == TOMBSTONE_TYPE:
            return Ending(next_entry.skip(opened, explain_tombstone(message)))
        if message.type == UNREADABLE_TYPE:
            # Its report is in the error queue already. Nobody knows what it says, so what comes
            # after it must not be processed before a person has decided.
            reason = explain_unreadable(message)
            failed = next_entry.fail(opened, reason=reason, outbox=NO_OUTBOX, halts=True)
            return Ending(failed)
        try:
            handler = self.handlers.of(message.type, message.session)
            if handler.kind in (Kind.PURE, Kind.DETERMINISTIC):
                here = self.handlers.by_type
                most, seconds = self.body_bytes_max, self.pure_seconds
                result = run_pure(handler, given, message, here, seconds, most)
                if result.replied_to is not None:
                    self.require_allowed(result.replied_to)
            else:
                result = await self.run_outside(handler, given, message)
        except Exception as error:
            # Everything: a pure handler would fail in the same way on every redelivery, until the
            # broker dead-letters the message out of order.
            return self.fail(opened, error)
        return self.complete(opened, handler.kind, result)

    def require_allowed(self, queue: str) -> None:
        """Raise NotAllowed for an answer to a queue that the settings do not allow.

        Anybody who may send names such a queue, and the app may send to queues that they may not.
        """
        if queue not in self.reply_queues:
            raise NotAllowed(f"no answer goes to {queue!r}: LOCKSTEP_REPLY_QUEUES does not name it")

    async def run_outside(
        self, handler: Handler, given: HandlerInput, message: Message
    ) -> HandlerResult:
        """Run a handler that calls the outside, several times if need be.

        No try begins once the limit of one run has passed, so that the invocation ends in time.
        Raises HandlerFailed for what the handler raises in the end, TookTooLong and InvalidBody.
        """
        began = asyncio.get_running_loop().time()
        for tried in range(1, handler.attempts):
            try:
                return await self.run_once(handler, given, message)
            except (CallerError, TookTooLong):
                # The message is wrong, not the outside, and would be so again; or the time is up.
                raise
            except Exception:
                if asyncio.get_running_loop().time() - began >= self.handler_seconds:
                    raise
                await self.clock.sleep(RETRY_SECONDS * tried)
        return await self.run_once(handler, given, message)

    async def run_once(
        self,
        handler: Handler,
        given: HandlerInput,
        message: Message,
        steps: StepRunner | None = None,
    ) -> HandlerResult:
        """Run a handler that calls the outside once; one that is not a coroutine gets a thread.

        Raises HandlerFailed for what the handler raises, StepError, TookTooLong, InvalidBody,
        UnreadableState and InvalidState. A thread cannot be stopped: a run that is cut off goes on
        in it, and its result is dropped.
        """
        is_async = inspect.iscoroutinefunction(handler.handle)
        context = Context(message, given.captured, steps=steps if is_async else None)
        process = os.getpid()

        async def call() -> HandlerResult:
            try:
                body, state = parse_body(handler, message), parse_state(handler.state, given)
                if inspect.iscoroutinefunction(handler.handle):
                    returned = await handler.handle(state, body, context)
                else:
                    run = partial(copy_context().run, handler.handle, state, body, context)
                    returned = await asyncio.get_running_loop().run_in_executor(self.threads, run)
                    returned = await returned if inspect.isawaitable(returned) else returned
                here, most = self.handlers.by_type, self.body_bytes_max
                return build_result(handler, returned, given, context, here, most)
            except (LockstepError, StepError, HandlerCutOff):
                raise
            except BaseException as error:
                # Here, as some of these would end the event loop, and with it the worker. Nobody
                # waits any more for a task whose cancellation comes by here.
                raise HandlerFailed(error) from error
            finally:
                if os.getpid() != process:
                    os._exit(1)

        try:
            result = await self.finish(call(), self.handler_seconds)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Only the handler was cancelled, and by itself.
            raise HandlerFailed(error) from error
        if result.replied_to is not None:
            self.require_allowed(result.replied_to)
        return result

    def complete(self, opened: Entry, kind: Kind, result: HandlerResult) -> Ending:
        """The entry of a handler's result, with the outputs where they are to be kept."""
        # Pending for all regions from the beginning, so that a crash before sending loses nothing.
        outbox = Outbox(result.batches, self.regions) if result.batches else NO_OUTBOX
        staged: tuple[DestinationBatch, ...] = ()
        if result.batches and kind is Kind.DETERMINISTIC:
            # Not stored at all: the handler makes the same bytes again.
            outbox = outbox.kept_at(Rerun(digest_batches(result.batches)))
        elif result.batches and not fits_entry(outbox.messages):
            # Staged under the attempt: another attempt at this entry neither sees nor removes it.
            staged = tuple(split_outputs(result.batches))
            outbox = outbox.kept_at(Staged(opened.attempt.id, len(staged)))
        entry = next_entry.complete(opened, result, outbox)
        if self.keeps_inputs:
            kept = KeptInput(message_in(opened), result.captured)
            is_whole = self.handlers.archives(kept.message.type)
            entry = next_entry.keep_input(entry, kept, is_whole=is_whole)
        if entry.state_apart:
            entry = next_entry.shorten_state(entry)
        return Ending(entry, result.batches, staged)

    def fail(self, opened: Entry, error: Exception) -> Ending:
        """The entry that keeps a message whose handler failed, with a copy for the error queue."""
        message, reason = message_in(opened), describe_error(error)
        handler = self.handlers.by_type.get(message.type)
        raised_at = find_frames(error)
        outbox = self.address_fault(message, reason, raised_at)
        entry = next_entry.fail(
            opened,
            reason=reason,
            raised_at=raised_at,
            outbox=outbox,
            halts=must_halt(handler, error),
        )
        if self.keeps_inputs:
            is_whole = self.handlers.archives(message.type)
            entry = next_entry.keep_input(entry, KeptInput(message), is_whole=is_whole)
        is_strange = isinstance(error, NotAllowed)
        return Ending(replace(entry, alert=reason if is_strange else None), outbox.batches)

    def address_fault(self, message: Message, reason: str, raised_at: tuple[str, ...]) -> Outbox:
        """A copy of the message for the error queue of every region."""
        return address(ERRORS, [report_fault(message, reason, raised_at)], self.regions)


def must_halt(handler: Handler | None, error: Exception) -> bool:
    """Say whether the fault of a message stops its session."""
    # What nobody may say here is a stranger's: it stops no session, and is listed for a person.
    if isinstance(error, NotAllowed):
        return False
    # A type without a handler halts: skipping what nobody knows would lose it in silence. So does
    # a state that cannot be read: a person has to correct something, or say what happened outside.
    asks = isinstance(error, UnreadableState | StepUnknown)
    return handler is None or handler.on_fault is OnFault.HALT or asks


def message_in(opened: Entry) -> Message:
    """The message of an entry that has not ended."""
    if opened.message is None or opened.status is not Status.WORKING:
        raise ValueError(f"entry {opened.position} of {opened.session!r} holds no message")
    return opened.message


def run_pure(
    handler: Handler,
    given: HandlerInput,
    message: Message,
    here: Collection[str] = (),
    seconds: float = PURE_SECONDS,
    body_bytes_max: int = BODY_BYTES_MAX,
) -> HandlerResult:
    """Run a pure handler. The same input gives the same bytes, in any process.

    `here` are the message types that the app has handlers for: outputs of these come back to it.
    Raises HandlerFailed for what the handler raises and for one that turns out to be a coroutine,
    TookTooLong after so many seconds, InvalidBody, UnreadableState, InvalidState, and
    InvalidMessage for an output of more bytes than a queue takes.
    """
    context = Context(message, given.captured, looks_up=given.looks_up)
    # Watched from here on, without a call: this is the way of nearly every message. A fork has no
    # threads of its parent.
    if WATCHDOG.thread is None or not WATCHDOG.thread.is_alive():
        WATCHDOG.start()
    thread, process, loop = get_ident(), os.getpid(), asyncio._get_running_loop()
    WATCHDOG.ends[thread] = time.monotonic() + seconds
    try:
        # The worker's own loop is nothing that a pure handler may stop, or leave something in.
        asyncio._set_running_loop(None)
        try:
            body, state = parse_body(handler, message), parse_state(handler.state, given)
            returned = handler.handle(state, body, context)
            if inspect.isawaitable(returned):
                if inspect.iscoroutine(returned):
                    # Nobody will await it, so that it must not warn.
                    returned.close()
                raise TypeError(f"the {handler.kind} handler of {message.type!r} must not be async")
            return build_result(handler, returned, given, context, here, body_bytes_max)
        except (LockstepError, HandlerCutOff):
            raise
        except BaseException as error:
            # Here, because to look at an exception may take for ever as well.
            raise HandlerFailed(error) from error
    except HandlerCutOff as cut_off:
        raise TookTooLong(seconds) from cut_off
    finally:
        # A handler that forks comes back twice, and a copy of the worker would write what it does.
        if os.getpid() != process:
            os._exit(1)
        asyncio._set_running_loop(loop)
        del WATCHDOG.ends[thread]


def parse_state(declared: StateModel, given: HandlerInput) -> BaseModel:
    """A stored state as its model, or the model's defaults where there is none.

    It shares nothing with what is remembered. Raises UnreadableState: what a model would ignore or
    fill with a default is data that the next entry would lose; and NewerState.
    """
    if declared.model is NoState or not given.state:
        return declared.model()
    current = ModelVersion(declared.name, declared.version)
    # Entries from before the model was recorded are of its first version.
    stored = given.model or ModelVersion(declared.name, 1)
    if stored != current:
        require_known(declared, stored)
        return upgrade_state(declared, stored, given.state)
    text = to_json(given.state)
    try:
        state = declared.model.model_validate_json(text)
    except HandlerCutOff:
        raise
    except BaseException as error:
        raise UnreadableState(
            f"the stored state is no {declared.name}: {describe_refusal(error)}"
        ) from error
    read = state.model_dump_json(by_alias=True, round_trip=True, warnings=False)
    if read.encode() != text and (changed := changed_fields(given.state, from_json(read))):
        raise UnreadableState(
            f"the stored state is not what {declared.name} version {declared.version} reads:"
            f" {', '.join(changed)}"
        )
    return state


def require_known(declared: StateModel, stored: ModelVersion | None) -> None:
    """Raise NewerState for a state of a newer version than this app knows.

    So it is while a deployment is under way: nothing is wrong with the message, and it waits for
    the newer code.
    """
    if stored is None or stored.name != declared.name or stored.version <= declared.version:
        return
    raise NewerState(
        f"the session's state is of version {stored.version} of {stored.name!r}, and this app"
        f" knows version {declared.version}: it waits for the newer code",
        NEWER_CODE_SECONDS,
    )


def upgrade_state(declared: StateModel, stored: ModelVersion, state: Json) -> BaseModel:
    """A state of an older version as the model is now; raises UnreadableState."""
    if stored.name != declared.name:
        raise UnreadableState(
            f"the session's state is of the model {stored.name!r}, and the handler wants"
            f" {declared.name!r}"
        )
    if declared.upgrade is None:
        raise UnreadableState(f"{declared.name!r} has no upgrade from version {stored.version}")
    what = f"the upgrade of {stored.name!r} from version {stored.version}"
    try:
        upgraded = declared.upgrade(json.loads(to_json(state)), stored.version)
        keep_state(declared, upgraded, what)
    except HandlerCutOff:
        raise
    except BaseException as error:
        raise UnreadableState(f"{what} failed: {describe_error(error)}") from error
    return upgraded


def keep_state(declared: StateModel, state: Any, whose: str) -> Json:
    """A new state as the journal keeps it: reading makes the same of it again (values.py).

    Raises InvalidState, which says `whose` state it is. A model that was built or copied without
    validation may hold anything.
    """
    model: Any = declared.model
    if type(state) is not model:
        found = "None" if state is None else f"a {type(state).__name__}"
        raise InvalidState(f"{whose} returned {found}, not {model.__name__} or Handled")
    # Nearly every state is plain data, of which the bytes tell types and digits without a walk.
    # Whatever goes wrong here is told by name below.
    with suppress(Exception):
        text = state.model_dump_json(by_alias=True, round_trip=True, warnings=False)
        again = model.model_validate_json(text)
        text_again = again.model_dump_json(by_alias=True, round_trip=True, warnings=False)
        before, after = (marshal.dumps((vars(one), one.model_extra), 2) for one in (state, again))
        if before == after and text_again == text:
            document: Json = from_json(text, allow_inf_nan=False)
            if has_sets(declared.model):
                sort_sets(state, document)
            return document
    if why := explain_losses(state):
        raise InvalidState(f"{whose} returned {why}")
    kept: Json = make_document(state, round_trip=True)
    return kept


def keep_body(body: Any, what: str) -> Any:
    """A body or an answer as a JSON document. Raises NotStorable, which says `what` it is.

    It is for others, who have models of their own: what a model computes goes with it, and only
    the values have to be kept, under whatever names.
    """
    if not isinstance(body, BaseModel):
        raise NotStorable(f"{what} is a {type(body).__name__}, not a pydantic model")
    why = explain_losses(body)
    if why is not None and explain_losses(body, by_alias=False) is not None:
        raise NotStorable(f"{what} is {why}")
    return make_document(body, round_trip=False)


def parse_body(handler: Handler, message: Message) -> BaseModel:
    """The body as the handler's model, or InvalidBody saying which field or validator refused."""
    try:
        return handler.body.model_validate_json(message.body)
    except HandlerCutOff:
        raise
    except BaseException as error:
        raise InvalidBody(f"message {message.id!r}: {describe_refusal(error)}") from error


def build_result(
    handler: Handler,
    returned: Any,
    given: HandlerInput,
    context: Context,
    here: Collection[str],
    body_bytes_max: int,
) -> HandlerResult:
    """Return the result of a handler as the journal keeps it.

    A handler that keeps no state leaves its session's alone. Raises InvalidState and NotStorable.
    """
    message, declared = context.message, handler.state
    handled = returned if isinstance(returned, Handled) else Handled(returned)
    state = keep_state(declared, handled.state, f"the handler of {message.type!r}")
    model: ModelVersion | None = ModelVersion(declared.name, declared.version)
    if declared.model is NoState:
        state, model = given.state, given.model
    batches: tuple[DestinationBatch, ...] = ()
    produced = given.produced
    if handled.outputs:
        batches, produced = number_outputs(
            context, handled.outputs, given.produced, here, body_bytes_max
        )
    reminders = given.reminders
    if reminders or handled.outputs:
        reminders = keep_reminders(reminders, message, handled.cancels, batches)
    if handled.ends:
        reminders = {}
    if handler.answer is not None and type(handled.answer) not in (handler.answer, type(None)):
        found = type(handled.answer).__name__
        raise NotStorable(f"its answer is a {found}, not a {handler.answer.__name__}")
    answer = None if handled.answer is None else keep_body(handled.answer, "its answer")
    if not isinstance(answer, dict | None):
        raise NotStorable("its answer is no JSON object: an answer has named fields")
    # As deep as it lies in its entry.
    size = require_storable({"state": state, "captured": context.values, "answer": answer})
    alert = shorten(handled.alert) if handled.alert else None
    return HandlerResult(
        state,
        batches,
        produced,
        context.values,
        answer,
        alert,
        context.replied_to,
        size,
        model,
        reminders,
        # To Python True is 1, so that only the text tells.
        is_state_kept=(state, model) == (given.state, given.model)
        and to_json(state) == to_json(given.state),
        base=given.base,
        ends=handled.ends,
        silence=int(handler.ends_after.total_seconds()) if handler.ends_after else None,
    )


def keep_reminders(
    waiting: Mapping[str, str],
    message: Message,
    cancels: Iterable[str],
    batches: Iterable[DestinationBatch],
) -> Mapping[str, str]:
    """The reminders that wait after a message, by name: without itself and what was cancelled.

    Raises NotStorable where they are too many.
    """
    gone = {*cancels, message.reminder}
    sent = (message for batch in batches for message in batch.messages if message.reminder)
    kept = {name: id_ for name, id_ in waiting.items() if name not in gone}
    kept |= {one.reminder: one.id for one in sent if one.reminder}
    if len(kept) > REMINDERS_MAX:
        raise NotStorable(f"{len(kept)} reminders wait in the session, over {REMINDERS_MAX}")
    return kept


def number_outputs(
    context: Context,
    outputs: tuple[Output, ...],
    produced: Produced,
    here: Collection[str],
    body_bytes_max: int,
) -> tuple[tuple[DestinationBatch, ...], Produced]:
    """Outputs as messages, in batches by destination, in the order of sending.

    The session is the producer group of its own outputs, so their order survives the next queue.
    """
    # Copied: the handler may run again on the same input, and has to number from the same start.
    numbers = {to: dict(sessions) for to, sessions in produced.items()}
    batches: list[DestinationBatch] = []
    for index, output in enumerate(outputs):
        to = output.to
        if to is None:
            to = HERE if output.type in here else OUTPUTS
        message = address_output(context, output, index, to, numbers.setdefault(to, {}))
        if len(message.body) > body_bytes_max:
            message.require_body_within(body_bytes_max)
        if batches and batches[-1].queue == to:
            batches[-1] = DestinationBatch(to, (*batches[-1].messages, message))
        else:
            batches.append(DestinationBatch(to, (message,)))
    return tuple(batches), {to: sessions for to, sessions in numbers.items() if sessions}


def address_output(
    context: Context, output: Output, index: int, to: str, numbers: dict[str, int]
) -> Message:
    """One output as a message; an ordered one takes the next number of its session.

    Raises InvalidBody for a scheduled one whose cause carries no time, and ValueError for a
    reminder that does not come back to its own session.
    """
    cause = context.message
    target = output.session or cause.session
    number, sent_at, reminder = None, cause.time, None
    if output.after is not None:
        if output.reminder and (target, to) != (cause.session, HERE):
            raise ValueError(f"the reminder {output.reminder!r} is for another session or queue")
        # Without a name it is a reminder as well: that makes it come later.
        sent_at, reminder = (context.now + output.after).isoformat(), output.reminder or ""
    elif output.ordered:
        sequence = numbers.get(target, 0)
        numbers[target] = sequence + 1
        prefix = HERE_PREFIX if to == HERE else OUTPUTS_PREFIX
        number = Number(prefix + cause.session, 0, sequence)
    return Message(
        id=derive_id(*cause.identity_parts, "output", str(index)),
        session=target,
        type=output.type,
        body=encode_canonically(output.body, f"its output {output.type!r}"),
        number=number,
        time=sent_at,
        correlation=cause.id,
        reminder=reminder,
        delay=None if output.delay is None else output.delay.total_seconds(),
        traceparent=Trace.of(cause).following if cause.traceparent else None,
    )


def encode_canonically(body: Any, what: str) -> bytes:
    """A body as JSON with sorted keys and no spaces: equal models give equal bytes."""
    document = keep_body(body, what)
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()
