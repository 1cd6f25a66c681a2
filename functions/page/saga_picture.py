"""A saga as a picture: its stages and waits in order, and over how much time each went."""

from dataclasses import dataclass, replace
from datetime import datetime

from functions.http.descriptions import format_seconds
from shared.domain.saga.plan import SagaState, Stage, Step, StepOutcome, Wait, longest_time
from shared.domain.saga.record import SagaRecord
from shared.engine.sagas.sagas import STARTED, RecordedSaga, StepAct

# The width that the template draws in, and that of what took no time.
WIDTH, WIDTH_MIN = 1_000.0, 12.0
NOTHING = StepAct(StepOutcome.UNKNOWN)
BAD = (StepOutcome.REFUSED, StepOutcome.UNKNOWN, StepOutcome.KEPT)


@dataclass(frozen=True, slots=True)
class Moment:
    """The time of a record, by ISO 8601 and in seconds since the saga's start."""

    at: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of time in a picture of WIDTH; `look` is good, bad, plain or undone."""

    x: float
    width: float
    look: str


@dataclass(frozen=True, slots=True)
class DrawnRow:
    """A step or a wait: what came of it so far, and when; a wait has no session.

    `position` and `undone_position` are those of the entries that say so. `until` is when the part
    at which the saga is should be over, by its plan.
    """

    name: str
    said: str | None
    look: str
    session: str | None = None
    position: int | None = None
    ended: Moment | None = None
    undone: Moment | None = None
    undone_position: int | None = None
    bars: tuple[Bar, ...] = ()
    until: Moment | None = None


@dataclass(frozen=True, slots=True)
class DrawnPart:
    """A stage, whose rows run side by side, or a wait, which is its only row."""

    rows: tuple[DrawnRow, ...]
    is_wait: bool = False
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """The time of a saga: its start in seconds since 1970, and how many seconds are drawn."""

    start: float
    seconds: float

    def moment(self, at: float | None) -> Moment | None:
        if at is None:
            return None
        return Moment(format_seconds(at), max(0.0, at - self.start))

    def bars(self, begin: float, end: float | None, look: str) -> tuple[Bar, ...]:
        """The stretch between two times; none where the end is not known."""
        if end is None:
            return ()
        left, right = (WIDTH * max(0.0, at - self.start) / self.seconds for at in (begin, end))
        width = max(right - left, WIDTH_MIN)
        return (Bar(min(left, WIDTH - width), width, look),)


def draw_parts(record: SagaRecord, history: RecordedSaga) -> list[DrawnPart]:
    """Each part of a saga's plan in order; nothing of a saga that has not started.

    A part begins when the one before it ended. Where the journals do not say when something ended,
    because it has not, or its entry is compacted away, it has no bar.
    """
    if record.plan is None or record.at is None:
        return []
    # By the store's clock, as everything else here.
    start = history.moments.get(STARTED, datetime.fromisoformat(record.at).timestamp())
    acts = [*history.done.values(), *history.undone.values()]
    known = [*history.moments.values(), *(act.at for act in acts if act.at is not None)]
    scale = Scale(start, max([1.0, *(at - start for at in known)]))
    parts, begin = list[DrawnPart](), start
    is_reached = record.state is SagaState.RUNNING and not history.turns_back
    for part in record.plan.parts:
        if isinstance(part, Wait):
            row = draw_wait(part, part.decision(record.events), history, scale, begin)
            drawn = DrawnPart((row,), is_wait=True)
        else:
            rows = (draw_step(step, record, history, scale, begin) for step in part.steps)
            drawn = DrawnPart(tuple(rows), is_final=part.is_final)
        if is_reached and any(row.said is None for row in drawn.rows):
            # It is at the first part of which something is open.
            is_reached, limits = False, limit_rows(part)
            rows = (
                row if row.said else replace(row, until=scale.moment(begin + seconds))
                for row, seconds in zip(drawn.rows, limits, strict=True)
            )
            drawn = replace(drawn, rows=tuple(rows))
        parts.append(drawn)
        begin = max([begin, *(start + row.ended.seconds for row in drawn.rows if row.ended)])
    return parts


def limit_rows(part: Stage | Wait) -> list[float]:
    """Return for how many seconds each row of a part may take by its plan."""
    return [part.seconds] if isinstance(part, Wait) else [*map(longest_time, part.steps)]


def draw_wait(
    wait: Wait, decision: str | None, history: RecordedSaga, scale: Scale, begin: float
) -> DrawnRow:
    # To turn back because somebody said so, or nobody said anything, is no failure.
    look = "good" if decision in wait.onward else "plain"
    end = history.moments.get(decision or "")
    return DrawnRow(
        wait.name, decision, look, ended=scale.moment(end), bars=scale.bars(begin, end, look)
    )


def draw_step(
    step: Step, record: SagaRecord, history: RecordedSaga, scale: Scale, begin: float
) -> DrawnRow:
    outcome = history.outcome(record, step.name)
    done, undone = (acts.get(step.name, NOTHING) for acts in (history.done, history.undone))
    look = "bad" if outcome in BAD else "good" if outcome is StepOutcome.DONE else "plain"
    first = scale.bars(begin, done.at, "good" if done.outcome is StepOutcome.DONE else "bad")
    return DrawnRow(
        step.name,
        outcome,
        look,
        step.do.session,
        done.position,
        scale.moment(done.at),
        scale.moment(undone.at),
        undone.position,
        # When the undoing began nobody recorded.
        first + scale.bars(undone.at or begin, undone.at, "undone"),
    )
