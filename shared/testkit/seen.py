"""What can be seen of a stage in the end, and how two endings differ."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.domain.journal import Json, Status
from shared.domain.message import Message
from shared.testkit.stage import ERROR_QUEUE, REGIONS, Stage

# A region's queue, a session in it, and the producer group that orders what was sent to it.
type Stream = tuple[str, str, str, str]
# Id, type and body of a message.
type Said = tuple[str, str, bytes]


@dataclass(frozen=True, slots=True)
class Fault:
    """A message that failed, and why."""

    session: str
    type: str
    reason: str


@dataclass(frozen=True, slots=True)
class Seen:
    """States, outputs and faults; each output once, in the order of first arrival."""

    states: Mapping[str, Json]
    outputs: Mapping[Stream, tuple[Said, ...]]
    faults: tuple[Fault, ...]
    sent: tuple[Message, ...]


async def look(stage: Stage) -> Seen:
    """What is to be seen when a stage is at rest."""
    sessions = [
        session for session in stage.journal.partitions if stage.journal.store.newest(session)
    ]
    return Seen(
        states={session: await state(stage, session) for session in sorted(sessions)},
        outputs=outputs(stage),
        faults=tuple(sorted(faults(stage), key=lambda f: (f.session, f.type, f.reason))),
        sent=tuple(dict.fromkeys(sent(stage, REGIONS[0]))),
    )


async def state(stage: Stage, session: str) -> Json:
    """The state of a session."""
    worker = stage.worker(REGIONS[0]).worker
    return await worker.state_after(await worker.read_head(session))


def sent(stage: Stage, region: str) -> Iterator[Message]:
    """What a region's queues were sent, but for copies of faults."""
    for (there, queue), arrived in stage.bus.queues.items():
        if there == region and queue != ERROR_QUEUE:
            yield from (delivered.message for delivered in arrived)


def outputs(stage: Stage) -> dict[Stream, tuple[Said, ...]]:
    """Everything that was sent, by where its order counts; what is unordered is sorted."""
    streams: dict[Stream, dict[Said, None]] = defaultdict(dict)
    for (region, queue), arrived in stage.bus.queues.items():
        for message in (delivered.message for delivered in arrived):
            group = message.number.group if message.number else ""
            said = (message.id, message.type, message.body)
            streams[region, queue, message.session, group][said] = None
    return {stream: tuple(said if stream[-1] else sorted(said)) for stream, said in streams.items()}


def faults(stage: Stage) -> Iterator[Fault]:
    """What failed, as the journals say."""
    for session, documents in stage.journal.partitions.items():
        for document in documents.values():
            if document.get("status") == Status.FAULTED.value:
                yield Fault(session, document["covers"][0]["type"], document["reason"])


def difference(quiet: Seen, disturbed: Seen) -> str | None:
    """The first thing that a disturbance changed, in words."""
    for session in sorted({*quiet.states, *disturbed.states}):
        before, after = quiet.states.get(session), disturbed.states.get(session)
        if before != after:
            return f"the state of {session!r} is {shown(after)}, undisturbed it is {shown(before)}"
    if quiet.faults != disturbed.faults:
        return f"the faults are {disturbed.faults}, undisturbed they are {quiet.faults}"
    for stream in sorted({*quiet.outputs, *disturbed.outputs}):
        said = compared(quiet.outputs.get(stream, ()), disturbed.outputs.get(stream, ()))
        if said:
            region, queue, session, _ = stream
            return f"in queue {queue!r} of region {region}, for session {session!r}, {said}"
    return None


def compared(quiet: tuple[Said, ...], disturbed: tuple[Said, ...]) -> str | None:
    """How outputs of one stream differ."""
    for place, (before, after) in enumerate(zip(quiet, disturbed, strict=False), start=1):
        if before != after:
            return f"output {place} is {told(after)}, undisturbed it is {told(before)}"
    if len(quiet) == len(disturbed):
        return None
    longer, word = (quiet, "missing") if len(quiet) > len(disturbed) else (disturbed, "too many")
    place = min(len(quiet), len(disturbed))
    return f"output {place + 1} is {word}: {told(longer[place])}"


def told(said: Said) -> str:
    """An output in words."""
    message_id, message_type, body = said
    return f"{message_type} {body.decode()} (id {message_id})"


def shown(state: Json | None) -> str:
    """A state in words."""
    return "none" if state is None else json.dumps(state, sort_keys=True)
