"""What a walk calls, by name: JSON in, JSON out, as Durable Functions hands it over.

Each may be called any number of times, at the same time, and in both regions. What raises is to be
called again.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from shared.domain.saga.plan import Direction, SagaState, Step
from shared.domain.saga.record import SagaEnd
from shared.domain.saga.walk import Activity
from shared.engine.sagas.sagas import Sagas

type ActivityInput = Mapping[str, Any]
type PerformActivity = Callable[[ActivityInput], Awaitable[dict[str, Any]]]

GIVEN_UP = "its session gave no answer"


class SagaActivities:
    """The activities of one worker."""

    def __init__(self, sagas: Sagas) -> None:
        self.sagas = sagas

    def find(self, activity: Activity) -> PerformActivity:
        """The activity of this name."""
        match activity:
            case Activity.STEP:
                return self.step
            case Activity.GIVE_UP:
                return self.give_up
            case Activity.DECIDE:
                return self.decide
            case Activity.LOOK:
                return self.look
            case Activity.END:
                return self.end

    async def step(self, work: ActivityInput) -> dict[str, Any]:
        """Apply or undo a step: a StepReply."""
        step, direction = Step.model_validate(work["step"]), Direction(work["direction"])
        reply = await self.sagas.steps.apply(work["key"], work["at"], step, direction)
        return reply.model_dump(mode="json")

    async def give_up(self, work: ActivityInput) -> dict[str, Any]:
        """See to it that a step never acts, unless it has: a StepReply."""
        step = Step.model_validate(work["step"])
        reply = await self.sagas.steps.apply(
            work["key"], work["at"], step, Direction.DO, give_up=GIVEN_UP
        )
        return reply.model_dump(mode="json")

    async def decide(self, work: ActivityInput) -> dict[str, Any]:
        """What ends a wait: `{"event": name or None, "events": all so far}`."""
        events = await self.sagas.decide(work["key"], work["wait"], is_over=work["is_over"])
        return {"event": events.decision, "events": list(events.all)}

    async def look(self, work: ActivityInput) -> dict[str, Any]:
        """`{"ended": SagaState}`, or the saga as a walk begins with it."""
        found = await self.sagas.load(work["key"])
        return (
            {"ended": found.value}
            if isinstance(found, SagaState)
            else found.model_dump(mode="json")
        )

    async def end(self, work: ActivityInput) -> dict[str, Any]:
        """Record the end: `{"ended": the SagaState that was recorded first}`."""
        return {"ended": (await self.sagas.end(SagaEnd.model_validate(work))).value}
