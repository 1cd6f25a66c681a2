"""A saga's steps in the sessions they concern: applied once, given up for good, or undone.

Every reply is the one that the step's session recorded, so it is the same for whoever asks.
"""

import asyncio
import json
from dataclasses import replace

from shared.domain.errors import Unavailable
from shared.domain.message import Message
from shared.domain.reports import TOMBSTONE_TYPE
from shared.domain.saga.plan import Direction, Step, StepOutcome, StepReply, step_message
from shared.domain.window import explain_expiry
from shared.engine.sagas.commands import Answered, CommandReply, Commands, Failed, read_reply


class SagaSteps:
    """One worker's way to the steps of any saga."""

    def __init__(self, commands: Commands) -> None:
        self.commands = commands
        self.worker = commands.worker

    async def apply(
        self, key: str, at: str, step: Step, direction: Direction, *, give_up: str | None = None
    ) -> StepReply:
        """Apply a step or its compensation, or learn what it came to before.

        With a reason to `give_up` it is seen to that the step never acts, unless it has. A
        tombstone takes the place of its command then: it has the same id, so its session takes only
        one of the two, whichever comes first. Raises Unavailable or OutcomeUnknown: ask again.
        """
        message = step_message(key, at, step, direction)
        try:
            async with asyncio.timeout(step.seconds):
                window = self.worker.policy.window_seconds
                expiry = explain_expiry(message, self.worker.clock.today(), window)
                if expiry is not None:
                    # Its session no longer knows whether it acted, but may still have the entry.
                    unknown = StepReply(outcome=StepOutcome.UNKNOWN, reason=expiry)
                    return await self.recorded(message) or unknown
                if give_up is None:
                    reply = await self.commands.apply(message)
                    if isinstance(reply, Answered):
                        return interpret(reply)
                else:
                    reason = json.dumps({"reason": give_up}).encode()
                    await self.commands.apply(replace(message, type=TOMBSTONE_TYPE, body=reason))
                # It may be that the other of command and tombstone was first.
                recorded = await self.recorded(message)
        except TimeoutError:
            raise Unavailable(f"step {step.name!r} took over {step.seconds:g} s") from None
        if recorded is None:
            raise Unavailable(f"session {message.session!r} is not ready to answer")
        return recorded

    async def recorded(self, message: Message) -> StepReply | None:
        """What the session has recorded for a command or its tombstone; None for nothing yet."""
        reply = await read_reply(self.worker.journal, message)
        return interpret(reply) if reply is not None else None


def interpret(reply: CommandReply) -> StepReply:
    """What a session's reply means to a saga: an answer may be a refusal, a fault always is."""
    match reply:
        case Answered(answer):
            refused = answer.get("refused")
            outcome = StepOutcome.DONE if refused is None else StepOutcome.REFUSED
            return StepReply(outcome=outcome, reason=refused)
        case Failed(reason):
            return StepReply(outcome=StepOutcome.REFUSED, reason=reason)
