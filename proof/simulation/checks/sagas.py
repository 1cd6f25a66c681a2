"""The end of every saga by the journals alone: it must be all or nothing, in both regions."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from proof.simulation.world.clients import CancelSaga, SagaRequest, SendEvent, StartSaga
from proof.simulation.world.recorder import RecordingJournal, Violation
from proof.simulation.world.world import World
from shared.domain.journal import Entry, Status
from shared.domain.message import digest_content
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.saga.plan import (
    CANCELLED,
    Direction,
    SagaState,
    Stage,
    Step,
    StepOutcome,
    Wait,
    instance_of,
    key_of,
    session_of,
    step_id,
)
from shared.domain.saga.record import END_TYPE, SagaRecord
from shared.engine.sagas.sagas import SagaResponse
from shared.storage.entries import decode_entry


@dataclass(frozen=True, slots=True)
class CoveringEntry:
    """An entry that covers a message of this type; `at` is its place among all that was written."""

    at: int
    type: str
    entry: Entry

    @property
    def acts(self) -> bool:
        is_completed = self.entry.status is Status.COMPLETED
        return is_completed and (self.entry.answer or {}).get("refused") is None


type EntriesByMessage = dict[tuple[str, str], list[CoveringEntry]]


def entries_by_message(journal: RecordingJournal) -> EntriesByMessage:
    """Return what was recorded of every message, by session and id, but that it was parked."""
    entries: EntriesByMessage = defaultdict(list)
    for session, documents in journal.store.entries.items():
        for document in documents.values():
            entry, at = decode_entry(document), int(document["_etag"])
            if entry.status is not Status.PARKED:
                for identity in entry.identities:
                    entries[session, identity.id].append(CoveringEntry(at, identity.type, entry))
    return entries


@dataclass(frozen=True, slots=True)
class SagaHistory:
    """One saga. `records` are all states of its own session, the last one is `record`."""

    key: str
    records: tuple[SagaRecord, ...]
    entries: EntriesByMessage

    @property
    def record(self) -> SagaRecord:
        return self.records[-1]

    @property
    def steps(self) -> tuple[Step, ...]:
        return self.record.plan.steps if self.record.plan else ()

    def everything(self) -> Iterator[list[CoveringEntry]]:
        """Return what was recorded for each message of the saga, in its and its steps' sessions."""
        own = session_of(self.key)
        yield from (covering for (session, _), covering in self.entries.items() if session == own)
        for step in self.steps:
            yield from filter(None, (self.of(step, direction) for direction in Direction))

    def of(self, step: Step, direction: Direction) -> list[CoveringEntry]:
        """Return what was recorded of a step's command, or of what took its place."""
        command = step.do if direction is Direction.DO else step.undo
        if command is None:
            return []
        return self.entries.get((command.session, step_id(self.key, step.name, direction)), [])

    def acts(self, step: Step, direction: Direction) -> list[int]:
        """Return when a step's command, or its compensation, took effect: once at most."""
        return [covering.at for covering in self.of(step, direction) if covering.acts]


def saga_histories(journal: RecordingJournal, entries: EntriesByMessage) -> Iterator[SagaHistory]:
    for session, documents in journal.store.entries.items():
        key = key_of(session)
        states = [found["state"] for _, found in sorted(documents.items()) if found.get("state")]
        if key is not None and states:
            yield SagaHistory(key, tuple(map(SagaRecord.model_validate, states)), entries)


DO, UNDO = Direction.DO, Direction.UNDO
BACK = frozenset({SagaState.COMPENSATED, SagaState.COMPENSATION_FAILED})

type BrokenPromises = Iterator[tuple[str, str]]


def end_violations(saga: SagaHistory) -> BrokenPromises:
    """Check that it is all or nothing; anything else only where a session refused it."""
    record, plan = saga.record, saga.record.plan
    if plan is None or not record.state.is_end:
        return
    said_no = [w.name for w in plan.waits if w.decision(record.events) not in w.onward]
    every = {step.name for step in plan.steps}
    done = {step.name for step in plan.steps if saga.acts(step, DO)}
    undoable = {step.name for step in plan.steps if step.undo is not None}
    compensated = {step.name for step in plan.steps if saga.of(step, UNDO)}
    undone = {step.name for step in plan.steps if saga.acts(step, UNDO)}
    after_turn = [part for part in plan.parts[plan.turn + 1 :] if isinstance(part, Stage)]
    beyond = {step.name for stage in after_turn for step in stage.steps}
    match record.state:
        case SagaState.COMPLETED:
            fits = done == every and not compensated and not said_no
        case SagaState.UNFINISHED:
            fits = done >= every - beyond and not done >= beyond
            fits = fits and not compensated and not said_no
        case _:
            had_cause = said_no or done != every
            is_clean = compensated == undone
            fits = done & undoable == compensated and not done & beyond and bool(had_cause)
            fits = fits and is_clean is (record.state is SagaState.COMPENSATED)
    if not fits:
        yield "P5", f"{record.state} with {done} done, {undone} undone and no to {said_no}"
    for step in plan.steps:
        if step.name in beyond and any(entry.type == TOMBSTONE_TYPE for entry in saga.of(step, DO)):
            yield "P5", f"{step.name} was given up, and there is no way back"


def task_hub_violations(world: World, saga: SagaHistory) -> BrokenPromises:
    """Check that every instance, in whichever region, ended as the saga did."""
    name, state = instance_of(saga.key), saga.record.state
    for hub in world.hubs.values():
        for instance, outcome in hub.ends:
            if instance != name:
                continue
            if outcome.failed is not None:
                # An orchestrator that asks for something else than it did is not what it was.
                promise = "P4" if "NonDeterminism" in outcome.failed else "P6"
                yield promise, f"its instance in {hub.region} failed: {outcome.failed}"
            elif (outcome.ended, outcome.status) != (state, state):
                yield "P4", f"{hub.region} ended {outcome.ended}, not {state}"


def repetition_violations(saga: SagaHistory) -> BrokenPromises:
    """Check that without faults n steps, waits included, take n + 2 writes: none is repeated.

    A person who looks after a fault writes more.
    """
    ends = 0
    for covering in saga.everything():
        ends += covering[0].type == END_TYPE
        if len(covering) > 1 and covering[0].entry.status is not Status.FAULTED:
            yield "P7", f"{covering[0].type} was written {len(covering)} times"
    if ends > 1:
        yield "P7", f"its end was written {ends} times"


def saga_violations(world: World) -> Iterator[Violation]:
    answers: dict[str, list[tuple[SagaRequest, SagaResponse]]] = {}
    for request, answer in world.saga_clients.answers:
        answers.setdefault(request.key, []).append((request, answer))
    for saga in saga_histories(world.journal, entries_by_message(world.journal)):
        for promise, text in [
            *record_violations(saga.records),
            *(found for step in saga.steps for found in step_violations(saga, step)),
            *end_violations(saga),
            *stage_order_violations(saga),
            *answer_violations(saga, answers.get(saga.key, ())),
            *task_hub_violations(world, saga),
            *(repetition_violations(saga) if world.injector.profile.is_fault_free else ()),
        ]:
            yield Violation(promise, f"saga {saga.key}: {text}")


def record_violations(records: Sequence[SagaRecord]) -> BrokenPromises:
    """Check that a saga starts once and ends once, and keeps every event."""
    for before, after in pairwise(records):
        if before.events != after.events[: len(before.events)]:
            yield "P1", f"{before.events} became {after.events}"
        begun, same = (before.digest, before.at, before.plan), (after.digest, after.at, after.plan)
        if before.plan is not None and begun != same:
            yield "P2", "it was started twice"
        if before.state.is_end and before != after:
            yield "P2", f"it was {before.state}, and then {after.state}"
    if records[-1].state is SagaState.RUNNING:
        yield "P6", "it is running for ever"


def step_violations(saga: SagaHistory, step: Step) -> BrokenPromises:
    """Check that a step acts once at most, is undone after that, and has its true outcome."""
    done, undone = saga.acts(step, DO), saga.acts(step, UNDO)
    if len(done) > 1 or len(undone) > 1:
        yield "P2", f"{step.name} was done {len(done)} and undone {len(undone)} times"
    if undone and (not done or undone[0] < done[0]):
        yield "P2", f"{step.name} was undone and not done"
    if not saga.record.state.is_end:
        return
    outcome = saga.record.outcomes.get(step.name)
    if outcome not in outcomes(saga, step):
        yield "P9", f"{step.name} is {outcome}, and should be {outcomes(saga, step)}"


def outcomes(saga: SagaHistory, step: Step) -> tuple[StepOutcome | None, ...]:
    """Return what may be said of a step, by what was recorded; nothing, too, if it never acted."""
    if saga.acts(step, UNDO):
        return (StepOutcome.UNDONE,)
    if not saga.acts(step, DO):
        return (StepOutcome.REFUSED, None)
    return (StepOutcome.KEPT if saga.of(step, UNDO) else StepOutcome.DONE,)


def stage_order_violations(saga: SagaHistory) -> BrokenPromises:
    """Check that stage follows stage, onward and back, and none where the way back begins."""
    plan = saga.record.plan
    if plan is None:
        return
    goes_on = True
    for part in plan.parts:
        if isinstance(part, Wait):
            goes_on = goes_on and part.decision(saga.record.events) in part.onward
            continue
        acted = [bool(saga.acts(step, DO)) for step in part.steps]
        if any(acted) and not goes_on:
            yield "P3", f"{[step.name for step in part.steps]} were begun after the way back was"
        goes_on = goes_on and all(acted)
    onward = [[at for s in stage.steps for at in saga.acts(s, DO)] for stage in plan.stages]
    back = [[n.at for s in stage.steps for n in saga.of(s, UNDO)] for stage in plan.stages]
    ways = [*filter(None, onward), *filter(None, reversed(back))]
    if any(max(before) > min(after) for before, after in pairwise(ways)):
        yield "P3", f"its stages overlap: {onward}, and back {back}"


def answer_violations(
    saga: SagaHistory, answers: Sequence[tuple[SagaRequest, SagaResponse]]
) -> BrokenPromises:
    """Check that what clients were answered holds."""
    record = saga.record
    for request, answer in answers:
        is_taken = answer.is_accepted
        match request.action:
            case StartSaga(kind, body):
                if is_taken is not (record.digest == digest_content(kind, body)):
                    yield "P2", f"a start was {answer}, and it began otherwise"
            case SendEvent(event):
                if is_taken and event not in record.events:
                    yield "P1", f"{event} was taken, and only {record.events} are kept"
            case CancelSaga():
                if is_taken and record.state not in BACK:
                    yield "P5", f"it was cancelled, and is {record.state}"
    if CANCELLED in record.events and record.state not in BACK:
        yield "P5", f"it took its cancellation, and is {record.state}"
