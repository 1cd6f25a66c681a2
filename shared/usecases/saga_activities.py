"""What a walk calls, by name: JSON in, JSON out, as Durable Functions hands it over.

Each may be called any number of times, at the same time, and in both regions. What raises is to be
called again.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from shared.domain.saga import Direction, State, Step
from shared.domain.saga_record import End
from shared.domain.saga_walk import Activity
from shared.usecases.saga_book import SagaBook

type Work = Mapping[str, Any]
type Perform = Callable[[Work], Awaitable[dict[str, Any]]]

GIVEN_UP = "its session gave no answer"


@dataclass(frozen=True, slots=True)
class SagaActivities:
    """The activities of one worker."""

    book: SagaBook

    def named(self, activity: Activity) -> Perform:
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

    async def step(self, work: Work) -> dict[str, Any]:
        """Apply or undo a step: a Reply."""
        step, direction = Step.model_validate(work["step"]), Direction(work["direction"])
        reply = await self.book.steps.apply(work["key"], work["at"], step, direction)
        return reply.model_dump(mode="json")

    async def give_up(self, work: Work) -> dict[str, Any]:
        """See to it that a step never acts, unless it has: a Reply."""
        step = Step.model_validate(work["step"])
        reply = await self.book.steps.give_up(work["key"], work["at"], step, GIVEN_UP)
        return reply.model_dump(mode="json")

    async def decide(self, work: Work) -> dict[str, Any]:
        """What ends a wait: `{"event": name or None, "events": all so far}`."""
        events = await self.book.decide(work["key"], work["wait"], is_over=work["is_over"])
        return {"event": events.decision, "events": list(events.all)}

    async def look(self, work: Work) -> dict[str, Any]:
        """`{"ended": State}`, or the saga as a walk begins with it."""
        found = await self.book.look(work["key"])
        return {"ended": found.value} if isinstance(found, State) else found.model_dump(mode="json")

    async def end(self, work: Work) -> dict[str, Any]:
        """Record the end: `{"ended": the State that was recorded first}`."""
        return {"ended": (await self.book.end(End.model_validate(work))).value}
