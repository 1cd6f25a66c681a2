"""The differences between two entries of the same messages: states, outputs, answers, faults."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from shared.domain.change import escape
from shared.domain.errors import LockstepError
from shared.domain.handler import HandlerInput, Handlers
from shared.domain.journal import Entry, Json, Status
from shared.domain.message import Message
from shared.domain.outbox import HERE, Rerun, Staged
from shared.engine.handle.handle import keep_state, parse_state
from shared.storage.documents import digest_batches

# In place of a value that one of the two does not have.
ABSENT = "(absent)"


@dataclass(frozen=True, slots=True)
class Difference:
    """A field that is another one, of an entry with messages of these types.

    The field is `state`, `output TYPE`, `answer`, `fault` and so on, with a JSON pointer where a
    part of it differs, in which `*` stands for any place of a list. Values are JSON, or ABSENT.
    """

    types: str
    field: str
    was: Any
    now: Any


def differing_fields(kept: Entry, made: Entry, handlers: Handlers) -> Iterator[Difference]:
    """Yield what is otherwise in an entry that was made again: each field once, as first found."""
    types = name_types(kept)
    seen: set[tuple[str, str]] = set()
    for one in compare_entries(kept, made, types, handlers):
        if (one.types, one.field) not in seen:
            seen.add((one.types, one.field))
            yield one


def name_types(entry: Entry) -> str:
    """The types of an entry's messages: several are named together, as none made it alone."""
    return " + ".join(sorted({identity.type for identity in entry.identities}))


def compare_entries(
    kept: Entry, made: Entry, types: str, handlers: Handlers
) -> Iterator[Difference]:
    was_fault, is_fault = (
        one.reason if one.status is Status.FAULTED else ABSENT for one in (kept, made)
    )
    if kept.status is not made.status or was_fault != is_fault:
        if {kept.status, made.status} & {Status.FAULTED}:
            yield Difference(types, "fault", was_fault, is_fault)
        else:
            yield Difference(types, "status", kept.status.value, made.status.value)
    if kept.status is not made.status:
        # The one has a state of its own, and the other has none: that says nothing more.
        return
    yield from compare_whole("halt", types, kept.halt is not None, made.halt is not None)
    if kept.status is not Status.COMPLETED:
        return
    yield from compare_values("state", types, state_of_today(kept, handlers), made.state or {})
    yield from compare_outputs(kept, made, types)
    for identity, other in zip(kept.identities, made.identities, strict=True):
        answers = (kept.answer or identity.answer, made.answer or other.answer)
        before, after = (one or ABSENT for one in answers)
        yield from compare_values("answer", identity.type, before, after)
    yield from compare_whole("alert", types, kept.alert, made.alert)
    yield from compare_whole("end", types, kept.is_ended, made.is_ended)
    yield from compare_whole("silence", types, kept.silence, made.silence)
    yield from compare_values("reminders", types, dict(kept.reminders), dict(made.reminders))


def state_of_today(kept: Entry, handlers: Handlers) -> Json:
    """A kept state as the handlers of today would read it, where their model is a newer version.

    Otherwise every field of every state would differ once a model has another version.
    """
    state, model = kept.state or {}, kept.model
    found = (handlers.by_type.get(identity.type) for identity in kept.identities)
    declared = [one.state for one in found if one and model and one.state.name == model.name]
    if model is None or not declared or model.version >= declared[0].version:
        return state
    try:
        upgraded = parse_state(declared[0], HandlerInput(state=state, model=model))
        return keep_state(declared[0], upgraded, "the upgrade")
    except LockstepError:
        return state


def compare_outputs(kept: Entry, made: Entry, types: str) -> Iterator[Difference]:
    """Yield what would be sent otherwise. An output is found by its id: its cause and its place."""
    match kept.outbox.location:
        case Rerun(digest):
            now = digest_batches(made.outbox.batches)
            yield from compare_whole("outputs by their digest", types, digest, now)
            return
        case Staged():
            # They lay in documents of their own, so only how many there were is known.
            yield from compare_values("output numbers", types, kept.produced, made.produced)
            return
    before, after = outputs_by_id(kept), outputs_by_id(made)
    causes = {identity.id: identity.type for identity in kept.identities}
    for key, (_, output) in (after | before).items():
        cause = causes.get(output.correlation or "", types)
        yield from compare_output(cause, before.get(key), after.get(key))
    order = [key for key in before if key in after]
    order_now = [key for key in after if key in before]
    if order != order_now:
        names = ([before[key][1].type for key in keys] for keys in (order, order_now))
        yield Difference(types, "order of outputs", *names)


type Sent = tuple[str, Message]


def outputs_by_id(entry: Entry) -> dict[str, Sent]:
    """The outputs of an entry by their ids, with the queues that they are for, in order."""
    return {one.id: (batch.queue, one) for batch in entry.outbox.batches for one in batch.messages}


def compare_output(types: str, was: Sent | None, now: Sent | None) -> Iterator[Difference]:
    if was is None or now is None:
        one = was or now
        if one is None:
            return
        body = json.loads(one[1].body)
        values = (ABSENT, body) if was is None else (body, ABSENT)
        yield Difference(types, f"output {one[1].type}", *values)
        return
    (was_queue, before), (now_queue, after) = was, now
    field = f"output {before.type}"
    if before.type != after.type:
        yield Difference(types, field, before.type, after.type)
        return
    yield from compare_whole(f"{field}, its queue", types, was_queue, now_queue)
    yield from compare_whole(f"{field}, its session", types, before.session, after.session)
    yield from compare_whole(f"{field}, its time", types, before.time, after.time)
    yield from compare_whole(f"{field}, its delay", types, before.delay, after.delay)
    yield from compare_whole(f"{field}, its reminder", types, before.reminder, after.reminder)
    is_numbered = before.number is not None, after.number is not None
    yield from compare_whole(f"{field}, its order", types, *is_numbered)
    if before.body != after.body:
        yield from compare_values(field, types, json.loads(before.body), json.loads(after.body))


def compare_whole(field: str, types: str, was: Any, now: Any) -> Iterator[Difference]:
    if was != now:
        was, now = (ABSENT if one is None else one for one in (was, now))
        yield Difference(types, field, was, now)


def compare_values(field: str, types: str, was: Any, now: Any) -> Iterator[Difference]:
    """The parts of two JSON values that differ. True is not 1, as it is to Python; 1.0 is 1."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for name in [*was, *(name for name in now if name not in was)]:
            part = f"{field}/{escape(name)}"
            yield from compare_values(part, types, was.get(name, ABSENT), now.get(name, ABSENT))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple):
        # Where one is longer, what both begin and end with is not compared with its neighbours.
        if len(was) != len(now):
            was, now = trim(was, now), trim(now, was)
        for pair in zip_longest(was, now, fillvalue=ABSENT):
            yield from compare_values(f"{field}/*", types, *pair)
    elif was != now or isinstance(was, bool) is not isinstance(now, bool):
        yield Difference(types, field, was, now)


def trim(one: Sequence[Any], other: Sequence[Any]) -> Sequence[Any]:
    """A list without what it begins and ends with as another one does."""
    most = min(len(one), len(other))
    first = next((n for n in range(most) if one[n] != other[n]), most)
    most -= first
    last = next((n for n in range(most) if one[-1 - n] != other[-1 - n]), most)
    return one[first : len(one) - last]


def sent_here(entry: Entry) -> dict[str, Message]:
    """The outputs of an entry for the app itself, by their ids."""
    return {key: message for key, (queue, message) in outputs_by_id(entry).items() if queue == HERE}
