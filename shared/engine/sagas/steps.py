"""A saga's steps, which are commands to the sessions they concern.

A command is asked, as any message may be (`Consumer.ask`): it has an id of its own, so asking again
acts once and gives the reply that its session recorded. A step is asked for, given up for good, or
undone in this way.
"""

import asyncio
import json
from dataclasses import replace
from typing import Any

from shared.domain.errors import NotRecorded, Unavailable
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.saga.plan import (
    Direction,
    Step,
    StepOutcome,
    StepReply,
    step_message,
    traceparent_of,
)
from shared.engine.consume.consume import Consumer
from shared.engine.consume.outcomes import Answered, Conflicting, Expired, Failed, Reply

# Why a step was given up whose tries all failed.
NO_ANSWER = "its session gave no answer"
# The session is halted, or somebody else works on it: worth another try after about so long.
RETRY_SECONDS = 5.0


class SagaSteps:
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    async def perform(self, work: dict[str, Any], *, give_up: str | None = None) -> dict[str, Any]:
        """Apply a step or its compensation, or learn what it came to before: a StepReply as JSON.

        `work` has the saga's `key`, the time `at` which it started, the `step`, and for all but
        giving up the `direction`. With a reason to `give_up` it is seen to that the step never
        acts, unless it has. A tombstone takes the place of its command then: it has the same id, so
        its session takes only one of the two, whichever comes first. Raises Unavailable or
        OutcomeUnknown: ask again.
        """
        step = Step.model_validate(work["step"])
        direction = Direction(work.get("direction", Direction.DO))
        command = step_message(work["key"], work["at"], step, direction)
        if self.consumer.worker.telemetry is not None:
            command = replace(command, traceparent=traceparent_of(work["key"]))
        sent = command
        if give_up is not None:
            body = json.dumps({"reason": give_up}).encode()
            sent = replace(command, type=TOMBSTONE_TYPE, body=body)
        try:
            async with asyncio.timeout(step.seconds):
                reply: Reply | None = await self.consumer.ask(sent)
                if isinstance(reply, Failed | Conflicting) or (
                    give_up and isinstance(reply, Answered)
                ):
                    # It may be that the other of command and tombstone was first.
                    reply = await self.consumer.read_reply(command)
        except NotRecorded as error:
            reply = Failed(str(error))
        except TimeoutError:
            raise Unavailable(f"step {step.name!r} took over {step.seconds:g} s") from None
        known = interpret(reply)
        if known is None:
            raise Unavailable(f"session {command.session!r} waits", RETRY_SECONDS)
        return known.model_dump(mode="json")

    async def give_up(self, work: dict[str, Any]) -> dict[str, Any]:
        """Perform the giving up of a step whose tries all failed."""
        return await self.perform(work, give_up=NO_ANSWER)


def interpret(reply: Reply | None) -> StepReply | None:
    """Return what a reply means to a saga: an answer may be a refusal, a fault always is.

    None for nothing, and while the command has not ended, or halts its session: a person may have
    it run again.
    """
    match reply:
        case Answered(answer={"refused": str(refused)}):
            return StepReply(outcome=StepOutcome.REFUSED, reason=refused)
        case Answered():
            # A field of that name which is no text is the handler's own.
            return StepReply(outcome=StepOutcome.DONE)
        case Failed(reason, halts=False) | Conflicting(reason):
            return StepReply(outcome=StepOutcome.REFUSED, reason=reason)
        case Expired(reason):
            return StepReply(outcome=StepOutcome.UNKNOWN, reason=reason)
        case _:
            return None
