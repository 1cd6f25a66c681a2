"""How a saga ended, against what became of its steps: all or nothing, and in every region alike."""

from collections.abc import Iterator
from dataclasses import dataclass

from shared.domain.journal import Status
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.saga.plan import Direction, Plan, SagaState, Stage, instance_of
from shared.domain.saga.record import END_TYPE
from simulation.chronicle import Chronicle
from simulation.world import World

DO, UNDO = Direction.DO, Direction.UNDO
BACK = frozenset({SagaState.COMPENSATED, SagaState.COMPENSATION_FAILED})

type Found = Iterator[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Steps:
    """The names of a saga's steps, by what became of them; `beyond` are those after the turn."""

    every: frozenset[str]
    done: frozenset[str]
    undoable: frozenset[str]
    asked_back: frozenset[str]
    undone: frozenset[str]
    beyond: frozenset[str]

    @classmethod
    def of(cls, saga: Chronicle, plan: Plan) -> "Steps":
        """What the journals say."""
        after = [part for part in plan.parts[plan.turn + 1 :] if isinstance(part, Stage)]
        return cls(
            every=frozenset(step.name for step in plan.steps),
            done=frozenset(step.name for step in plan.steps if saga.acts(step, DO)),
            undoable=frozenset(step.name for step in plan.steps if step.undo is not None),
            asked_back=frozenset(step.name for step in plan.steps if saga.of(step, UNDO)),
            undone=frozenset(step.name for step in plan.steps if saga.acts(step, UNDO)),
            beyond=frozenset(step.name for stage in after for step in stage.steps),
        )


def end_violations(saga: Chronicle) -> Found:
    """All or nothing; and anything else only where a session refused it."""
    record, plan = saga.record, saga.record.plan
    if plan is None or not record.state.is_end:
        return
    steps = Steps.of(saga, plan)
    no = [w.name for w in plan.waits if w.decision(record.events) not in w.onward]
    if not fits(record.state, steps, said_no=bool(no)):
        yield "P5", f"{record.state} with {steps} and no to {no}"
    for step in plan.steps:
        if step.name in steps.beyond and any(n.type == TOMBSTONE_TYPE for n in saga.of(step, DO)):
            yield "P5", f"{step.name} was given up, and there is no way back"


def fits(state: SagaState, steps: Steps, *, said_no: bool) -> bool:
    """Whether a saga with such steps may have ended so."""
    match state:
        case SagaState.COMPLETED:
            return steps.done == steps.every and not steps.asked_back and not said_no
        case SagaState.UNFINISHED:
            is_beyond = steps.done >= steps.every - steps.beyond and not steps.asked_back
            return is_beyond and not steps.done >= steps.beyond and not said_no
    # On its way back.
    is_whole = steps.done & steps.undoable == steps.asked_back and not steps.done & steps.beyond
    had_cause = said_no or steps.done != steps.every
    is_clean = steps.asked_back == steps.undone
    return is_whole and had_cause and is_clean is (state is SagaState.COMPENSATED)


def hub_violations(world: World, saga: Chronicle) -> Found:
    """Every instance, in whichever region, ended as the saga did."""
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


def quiet_violations(saga: Chronicle) -> Found:
    """In fair weather nothing is written twice, so n steps, waits included, take n + 2 writes.

    A person who looks after a fault writes more.
    """
    ends = 0
    for noted in saga.everything():
        ends += noted[0].type == END_TYPE
        if len(noted) > 1 and noted[0].entry.status is not Status.FAULTED:
            yield "P7", f"{noted[0].type} was written {len(noted)} times"
    if ends > 1:
        yield "P7", f"its end was written {ends} times"
