"""Run a message's handler, and build the entry that keeps what came of it: a result, or a fault.

Building an entry reads and writes nothing: outputs too large for the entry are named in the Ending,
and they are staged before the entry is committed.
"""

import asyncio
import inspect
import json
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from shared.domain import next_entry
from shared.domain.errors import CallerError, InvalidBody
from shared.domain.handler import (
    Context,
    Handled,
    Handler,
    HandlerInput,
    HandlerResult,
    Kind,
    NoState,
    OnFault,
    Output,
)
from shared.domain.journal import Entry, Produced, Status
from shared.domain.message import Message, Number, derive_id
from shared.domain.outbox import NO_OUTBOX, DestinationBatch, Outbox, Rerun, Staged, address
from shared.domain.reports import TOMBSTONE_TYPE, explain_tombstone, report_fault, shorten
from shared.engine.worker import Worker
from shared.storage.documents import digest_batches
from shared.storage.limits import fits_entry, split_outputs

# Between two tries of a handler that calls the outside, times the number of the try.
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ending:
    """An entry that has ended, and its outputs as they are to be sent.

    `staged` are outputs that do not fit into the entry: they are staged before it is committed.
    """

    entry: Entry
    batches: tuple[DestinationBatch, ...] = ()
    staged: tuple[DestinationBatch, ...] = ()


class HandlerRunner:
    def __init__(self, worker: Worker, regions: tuple[str, ...]) -> None:
        self.handlers = worker.handlers
        self.clock = worker.clock
        self.policy = worker.policy
        self.regions = regions

    async def run(self, opened: Entry, given: HandlerInput) -> Ending:
        """Run the handler of an opened entry's message; whatever it raises becomes a fault."""
        # A tombstone stands for an output that no queue took. It uses up the number, so that what
        # comes after it is not parked behind a gap.
        message = message_in(opened)
        if message.type == TOMBSTONE_TYPE:
            return Ending(next_entry.skip(opened, explain_tombstone(message)))
        try:
            handler = self.handlers.of(message.type)
            if handler.kind in (Kind.PURE, Kind.DETERMINISTIC):
                result = run_pure(handler, given, message)
            else:
                result = await self.run_outside(handler, given, message)
        except Exception as error:
            # Everything: a pure handler would fail in the same way on every redelivery, until the
            # broker dead-letters the message out of order.
            return self.fail(opened, error)
        return self.complete(opened, handler.kind, result)

    async def run_outside(
        self, handler: Handler, given: HandlerInput, message: Message
    ) -> HandlerResult:
        """Run a handler that calls the outside, several times if need be.

        Raises what the handler raises in the end, and InvalidBody.
        """
        for tried in range(1, handler.attempts):
            try:
                return await run_effectful(handler, given, message)
            except CallerError:
                # The message is wrong, not the outside: it would be just as wrong again.
                raise
            except Exception:
                await self.clock.sleep(RETRY_SECONDS * tried)
        return await run_effectful(handler, given, message)

    def complete(self, opened: Entry, kind: Kind, result: HandlerResult) -> Ending:
        """The entry of a handler's result, with the outputs where they are to be kept."""
        if not result.batches:
            return Ending(next_entry.complete(opened, result, NO_OUTBOX))
        # Pending for all regions from the beginning, so that a crash before sending loses nothing.
        batches = address_batches(result, self.policy.output_queue)
        outbox = Outbox(batches, self.regions)
        staged: tuple[DestinationBatch, ...] = ()
        if kind is Kind.DETERMINISTIC:
            # Not stored at all: the handler makes the same bytes again.
            outbox = outbox.kept_at(Rerun(digest_batches(result.batches)))
        elif not fits_entry(outbox.messages):
            # Staged under the attempt: another attempt at this entry neither sees nor removes it.
            staged = tuple(split_outputs(batches))
            outbox = outbox.kept_at(Staged(opened.attempt.id, len(staged)))
        return Ending(next_entry.complete(opened, result, outbox), batches, staged)

    def fail(self, opened: Entry, error: Exception) -> Ending:
        """The entry that keeps a message whose handler failed, with a copy for the error queue."""
        message, reason = message_in(opened), describe_error(error)
        handler = self.handlers.by_type.get(message.type)
        # A type without a handler halts: skipping what nobody knows would lose it in silence.
        halts = handler is None or handler.on_fault is OnFault.HALT
        outbox = self.address_fault(message, reason)
        entry = next_entry.fail(opened, reason=reason, outbox=outbox, halts=halts)
        return Ending(entry, outbox.batches)

    def address_fault(self, message: Message, reason: str) -> Outbox:
        """A copy of the message for the error queue of every region."""
        return address(self.policy.error_queue, [report_fault(message, reason)], self.regions)


def address_batches(result: HandlerResult, output_queue: str) -> tuple[DestinationBatch, ...]:
    """A result's batches with the app's output queue in place of the empty name."""
    return tuple(
        DestinationBatch(batch.queue or output_queue, batch.messages) for batch in result.batches
    )


def message_in(opened: Entry) -> Message:
    """The message of an entry that has not ended."""
    if opened.message is None or opened.status is not Status.WORKING:
        raise ValueError(f"entry {opened.position} of {opened.session!r} holds no message")
    return opened.message


def describe_error(error: Exception) -> str:
    """Why a message failed, in one line."""
    text = str(error) or "no message"
    return shorten(text if isinstance(error, CallerError) else f"{type(error).__name__}: {text}")


def run_pure(handler: Handler, given: HandlerInput, message: Message) -> HandlerResult:
    """Run a pure handler. The same input gives the same bytes, in any process.

    Raises what the handler raises, InvalidBody, and TypeError for a handler that is a coroutine.
    """
    context = Context(message, given.captured)
    returned = handler.handle(*parse_arguments(handler, given, message), context)
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            # Nobody will await it, so that it must not warn.
            returned.close()
        raise TypeError(f"the {handler.kind} handler of {message.type!r} must not be async")
    return build_result(returned, given, message, context)


async def run_effectful(handler: Handler, given: HandlerInput, message: Message) -> HandlerResult:
    """Run a handler that calls the outside once; one that is not a coroutine gets a thread.

    Raises what the handler raises, and InvalidBody.
    """
    context = Context(message, given.captured)
    state, body = parse_arguments(handler, given, message)
    if inspect.iscoroutinefunction(handler.handle):
        returned = await handler.handle(state, body, context)
    else:
        returned = await asyncio.to_thread(handler.handle, state, body, context)
        if inspect.isawaitable(returned):
            returned = await returned
    return build_result(returned, given, message, context)


def parse_arguments(
    handler: Handler, given: HandlerInput, message: Message
) -> tuple[BaseModel, BaseModel]:
    """State and body as the handler's models; they share nothing with what is remembered.

    Raises InvalidBody.
    """
    state = handler.state.model_validate_json(json.dumps(given.state))
    return state, parse_body(handler, message)


def parse_body(handler: Handler, message: Message) -> BaseModel:
    """The body as the handler's model, or InvalidBody saying which field is wrong."""
    try:
        return handler.body.model_validate_json(message.body)
    except ValidationError as error:
        raise InvalidBody(f"message {message.id!r}: {summarise(error)}") from error


def summarise(error: ValidationError) -> str:
    """A validation error in one line: field and complaint, without the input."""
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors()
    )


def build_result(
    returned: Any, given: HandlerInput, message: Message, context: Context
) -> HandlerResult:
    """What the handler returned, as the journal keeps it.

    A handler that keeps no state leaves its session's alone. Raises ValueError for a number that
    JSON does not have.
    """
    handled = returned if isinstance(returned, Handled) else Handled(returned)
    batches: tuple[DestinationBatch, ...] = ()
    produced = given.produced
    if handled.outputs:
        batches, produced = number_outputs(message, handled.outputs, given.produced)
    state = given.state
    if not isinstance(handled.state, NoState):
        state = handled.state.model_dump(mode="json", by_alias=True, round_trip=True)
        json.dumps(state, allow_nan=False)
    answer = handled.answer.model_dump(mode="json") if handled.answer is not None else None
    return HandlerResult(state, batches, produced, context.values, answer)


def number_outputs(
    cause: Message, outputs: tuple[Output, ...], produced: Produced
) -> tuple[tuple[DestinationBatch, ...], Produced]:
    """Outputs as messages, in batches by destination, in the order of sending.

    The session is the producer group of its own outputs, so their order survives the next queue.
    """
    # Copied: the handler may run again on the same input, and has to number from the same start.
    numbers = {to: dict(sessions) for to, sessions in produced.items()}
    batches: list[DestinationBatch] = []
    for index, output in enumerate(outputs):
        to = output.to or ""
        message = address_output(cause, output, index, numbers.setdefault(to, {}))
        if batches and batches[-1].queue == to:
            batches[-1] = DestinationBatch(to, (*batches[-1].messages, message))
        else:
            batches.append(DestinationBatch(to, (message,)))
    return tuple(batches), {to: sessions for to, sessions in numbers.items() if sessions}


def address_output(cause: Message, output: Output, index: int, numbers: dict[str, int]) -> Message:
    """One output as a message; an ordered one takes the next number of its session."""
    target = output.session or cause.session
    number = None
    if output.ordered:
        sequence = numbers.get(target, 0)
        numbers[target] = sequence + 1
        number = Number(f"session:{cause.session}", 0, sequence)
    return Message(
        id=derive_id(cause.session, cause.id, "output", str(index)),
        session=target,
        type=output.type,
        body=encode_canonically(output.body),
        number=number,
        time=cause.time,
        correlation=cause.id,
    )


def encode_canonically(body: BaseModel) -> bytes:
    """A body as JSON with sorted keys and no spaces: equal models give equal bytes."""
    document = body.model_dump(mode="json", by_alias=True)
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()
