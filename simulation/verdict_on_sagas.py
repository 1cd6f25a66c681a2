"""What every saga must have come to, by the journals alone."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from shared.domain.message import digest_content
from shared.domain.saga.plan import CANCELLED, SagaState, Step, StepOutcome, Wait
from shared.domain.saga.record import SagaRecord
from shared.engine.sagas.sagas import SagaResponse
from simulation.chronicle import Chronicle, chronicles, notes_of
from simulation.errands import Begin, Cancel, Errand, Tell
from simulation.verdict_on_ends import (
    BACK,
    DO,
    UNDO,
    Found,
    end_violations,
    hub_violations,
    quiet_violations,
)
from simulation.witness import Violation
from simulation.world import World


def saga_violations(world: World) -> Iterator[Violation]:
    """Every broken promise to a saga."""
    told: dict[str, list[tuple[Errand, SagaResponse]]] = {}
    for errand, answer in world.errands.told:
        told.setdefault(errand.key, []).append((errand, answer))
    for saga in chronicles(world.journal, notes_of(world.journal)):
        for promise, text in [
            *record_violations(saga.records),
            *(found for step in saga.steps for found in step_violations(saga, step)),
            *end_violations(saga),
            *order_violations(saga),
            *told_violations(saga, told.get(saga.key, ())),
            *hub_violations(world, saga),
            *(quiet_violations(saga) if world.weather.climate.is_fair else ()),
        ]:
            yield Violation(promise, f"saga {saga.key}: {text}")


def record_violations(records: Sequence[SagaRecord]) -> Found:
    """It starts once and ends once, and nothing that it was told is forgotten."""
    for before, after in pairwise(records):
        if before.events != after.events[: len(before.events)]:
            yield "P1", f"{before.events} became {after.events}"
        if before.plan is not None and (before.digest, before.at, before.plan) != (
            after.digest,
            after.at,
            after.plan,
        ):
            yield "P2", "it was started twice"
        if before.state.is_end and before != after:
            yield "P2", f"it was {before.state}, and then {after.state}"
    last = records[-1].state
    if last is SagaState.RUNNING:
        yield "P6", "it is running for ever"


def step_violations(saga: Chronicle, step: Step) -> Found:
    """Nothing acts twice, nor is undone before it was done; and the outcome is what happened."""
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


def outcomes(saga: Chronicle, step: Step) -> tuple[StepOutcome | None, ...]:
    """What may be said of a step, by what was recorded; one that never acted may be left out."""
    if saga.acts(step, UNDO):
        return (StepOutcome.UNDONE,)
    if not saga.acts(step, DO):
        return (StepOutcome.REFUSED, None)
    return (StepOutcome.KEPT if saga.of(step, UNDO) else StepOutcome.DONE,)


def order_violations(saga: Chronicle) -> Found:
    """Stage follows stage, onward and back, and none follows where the way back begins."""
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


def told_violations(saga: Chronicle, told: Sequence[tuple[Errand, SagaResponse]]) -> Found:
    """What people were told holds."""
    record = saga.record
    for errand, answer in told:
        is_taken = answer.is_accepted
        match errand.wish:
            case Begin(kind, body):
                if is_taken is not (record.digest == digest_content(kind, body)):
                    yield "P2", f"a start was {answer}, and it began otherwise"
            case Tell(event):
                if is_taken and event not in record.events:
                    yield "P1", f"{event} was taken, and only {record.events} are kept"
            case Cancel():
                if is_taken and record.state not in BACK:
                    yield "P5", f"it was cancelled, and is {record.state}"
    if CANCELLED in record.events and record.state not in BACK:
        yield "P5", f"it heard of its cancellation, and is {record.state}"
