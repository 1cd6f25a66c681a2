"""Run a handler on a state and a message, and turn what it returns into what the journal keeps."""

import inspect
import json
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from shared.domain.errors import InvalidBody
from shared.domain.handling import Context, Handled, Handler, NoState, Output
from shared.domain.journal import Json, Produced
from shared.domain.message import Message, Number, derived_id
from shared.domain.outbox import Parcel


@dataclass(frozen=True, slots=True)
class Before:
    """What a handler starts from: the state, the numbers given so far, what was captured."""

    state: Json = field(default_factory=dict)
    produced: Produced = field(default_factory=dict)
    captured: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """What running a handler gave, ready for the journal.

    The parcels' empty queue name stands for the app's own output queue.
    """

    state: Json
    parcels: tuple[Parcel, ...]
    produced: Produced
    captured: Json
    answer: Json | None = None


def run(handler: Handler, before: Before, message: Message) -> Result:
    """Run a pure handler. The same input gives the same bytes, in any process.

    Raises what the handler raises, InvalidBody, and TypeError for a handler that is a coroutine.
    """
    context = Context(message, before.captured)
    answer = handler.handle(*arguments(handler, before, message), context)
    if inspect.isawaitable(answer):
        close_unawaited(answer)
        raise TypeError(f"the {handler.kind} handler of {message.type!r} must not be async")
    return result_of(answer, before, message, context)


def arguments(handler: Handler, before: Before, message: Message) -> tuple[BaseModel, BaseModel]:
    """State and body as the handler's models; they share nothing with what is remembered."""
    state = handler.state.model_validate_json(json.dumps(before.state))
    return state, parse_body(handler, message)


def close_unawaited(answer: object) -> None:
    """End a coroutine that nobody will await, so that it does not warn."""
    if inspect.iscoroutine(answer):
        answer.close()


def result_of(answer: Any, before: Before, message: Message, context: Context) -> Result:
    """What the handler returned, as the journal keeps it.

    A handler that keeps no state leaves its session's alone. Raises ValueError for a number that
    JSON does not have.
    """
    handled = answer if isinstance(answer, Handled) else Handled(answer)
    parcels, produced = numbered(message, handled.outputs, before.produced)
    state = before.state
    if not isinstance(handled.state, NoState):
        state = handled.state.model_dump(mode="json", by_alias=True, round_trip=True)
        json.dumps(state, allow_nan=False)
    said = handled.answer.model_dump(mode="json") if handled.answer is not None else None
    return Result(state, parcels, produced, context.values, said)


def parse_body(handler: Handler, message: Message) -> BaseModel:
    """The body as the handler's model, or InvalidBody saying which field is wrong."""
    try:
        return handler.body.model_validate_json(message.body)
    except ValidationError as error:
        raise InvalidBody(f"message {message.id!r}: {summary(error)}") from error


def summary(error: ValidationError) -> str:
    """A validation error in one line: field and complaint, without the input."""
    return "; ".join(
        f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors()
    )


def numbered(
    cause: Message, outputs: tuple[Output, ...], produced: Produced
) -> tuple[tuple[Parcel, ...], Produced]:
    """Outputs as messages, in parcels by destination, in the order of sending.

    The session is the producer group of its own outputs, so their order survives the next queue.
    """
    numbers = {to: dict(sessions) for to, sessions in produced.items()}
    parcels: list[Parcel] = []
    for index, output in enumerate(outputs):
        to = output.to or ""
        message = output_message(cause, output, index, numbers.setdefault(to, {}))
        if parcels and parcels[-1].queue == to:
            parcels[-1] = Parcel(to, (*parcels[-1].messages, message))
        else:
            parcels.append(Parcel(to, (message,)))
    return tuple(parcels), {to: sessions for to, sessions in numbers.items() if sessions}


def output_message(cause: Message, output: Output, index: int, numbers: dict[str, int]) -> Message:
    """One output as a message; an ordered one takes the next number of its session."""
    target = output.session or cause.session
    number = None
    if output.ordered:
        sequence = numbers.get(target, 0)
        numbers[target] = sequence + 1
        number = Number(f"session:{cause.session}", 0, sequence)
    return Message(
        id=derived_id(cause.session, cause.id, "output", str(index)),
        session=target,
        type=output.type,
        body=canonical(output.body),
        number=number,
        time=cause.time,
        correlation=cause.id,
    )


def canonical(body: BaseModel) -> bytes:
    """A body as JSON with sorted keys and no spaces: equal models give equal bytes."""
    document = body.model_dump(mode="json", by_alias=True)
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def addressed(parcels: tuple[Parcel, ...], output_queue: str) -> tuple[Parcel, ...]:
    """The parcels with the app's output queue in place of the empty name."""
    return tuple(Parcel(parcel.queue or output_queue, parcel.messages) for parcel in parcels)
