"""Hold pure and deterministic handlers to it: the same input gives the same bytes, always."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from shared.domain.handler import (
    Context,
    Handler,
    HandlerInput,
    HandlerResult,
    Handlers,
    Kind,
    OnFault,
)
from shared.domain.journal import Json
from shared.domain.message import Message
from shared.engine.handle import handle
from shared.storage.documents import encode_batch
from shared.testkit.found import Found
from shared.testkit.given import described
from shared.testkit.witness import witnessed

type Shown = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A handler's run on a message: what it started from, and what it gave."""

    handler: Handler
    before: HandlerInput
    message: Message
    shown: Shown


def checked_runs(handlers: Handlers, messages: Iterable[Message]) -> list[Run]:
    """The runs of the messages in turn, each checked. Raises Found.

    Sessions of other kinds of handlers are left out from there on: nobody can foresee their state.
    """
    runs: list[Run] = []
    befores: dict[str, HandlerInput | None] = {}
    for message in messages:
        before = befores.setdefault(message.session, HandlerInput())
        handler = handlers.by_type.get(message.type)
        if before is None or handler is None or not is_pure(handler):
            befores[message.session] = None
            continue
        result = checked_run(handler, before, message)
        if result is None:
            halts = handler.on_fault is OnFault.HALT
            befores[message.session] = None if halts else before
            continue
        captured = HandlerInput(before.state, before.produced, result.captured)
        runs.append(Run(handler, captured, message, shown(result)))
        befores[message.session] = HandlerInput(result.state, result.produced)
    for run in reversed(runs):
        require_same(run, repeated(run), "when it runs again after the others")
    return runs


def is_pure(handler: Handler) -> bool:
    """Whether the handler promises to depend on its input alone."""
    return handler.kind in (Kind.PURE, Kind.DETERMINISTIC)


def checked_run(handler: Handler, before: HandlerInput, message: Message) -> HandlerResult | None:
    """Run a handler under watch, and once more; None where it fails."""
    with witnessed() as witness:
        try:
            result = handle.run_pure(handler, before, message)
        except Exception:
            return None
    if witness.seen:
        called, advice = witness.seen[0]
        raise Found(f"the {handler.kind} handler of {described(message)} calls {called}: {advice}")
    require_untouched(handler, before, message)
    captured = HandlerInput(before.state, before.produced, result.captured)
    run = Run(handler, captured, message, shown(result))
    require_same(run, repeated(run), "when it runs a second time")
    return result


def require_untouched(handler: Handler, before: HandlerInput, message: Message) -> None:
    """Raise Found where the handler changes what it was given."""
    state, body = handle.parse_arguments(handler, before, message)
    was = dumped(state), dumped(body)
    handler.handle(state, body, Context(message, before.captured))
    for name, model, before_run in (("state", state, was[0]), ("body", body, was[1])):
        if dumped(model) != before_run:
            raise Found(
                f"the handler of {described(message)} changes the {name} it was given, from"
                f" {before_run} to {dumped(model)}: return a changed copy, such as"
                f" {name}.model_copy(update=...)"
            )


def repeated(run: Run) -> Shown:
    """What the handler gives when it runs again on the same input."""
    return shown(handle.run_pure(run.handler, run.before, run.message))


def require_same(run: Run, again: Shown, when: str) -> None:
    """Raise Found where a later run gave something else."""
    if again != run.shown:
        first, second = difference(run.shown, again)
        raise Found(
            f"the handler of {described(run.message)} gives something else {when}: first {first},"
            f" then {second}. It keeps something between runs (a module variable, a default"
            f" argument, a class attribute), or depends on chance: only state, body and context"
            f" may decide"
        )


def difference(first: Shown, second: Shown) -> tuple[str, str]:
    """The part in which two results differ, of each."""
    for name in first:
        if first[name] != second.get(name):
            return json.dumps({name: first[name]}), json.dumps({name: second.get(name)})
    return json.dumps(first), json.dumps(second)


def shown(result: HandlerResult) -> Shown:
    """A result as it can be compared, also with one from another process."""
    outputs = [encode_batch(parcel) for parcel in result.batches]
    return {"state": plain(result.state), "outputs": plain(outputs)}


def plain(value: Any) -> Any:
    """A value as JSON gives it back."""
    return json.loads(json.dumps(value))


def dumped(model: BaseModel) -> Json:
    """A model's fields."""
    return model.model_dump(mode="json")
