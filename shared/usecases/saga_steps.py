"""A saga's steps in the sessions they concern: applied once, given up for good, or undone.

Every answer is the one that the step's session recorded, so it is the same for whoever asks.
"""

import asyncio
import json
from collections.abc import Awaitable
from dataclasses import dataclass, replace

from shared.domain.arrival import too_old
from shared.domain.errors import Unavailable
from shared.domain.message import Message
from shared.domain.reports import VOID_TYPE
from shared.domain.saga import Direction, Outcome, Reply, Step, step_message
from shared.ports import Clock, Journal
from shared.usecases.command import Answered, Commander, Failed, recorded
from shared.usecases.command import Reply as Told


@dataclass(frozen=True, slots=True)
class SagaSteps:
    """One worker's way to the steps of any saga."""

    journal: Journal
    commander: Commander
    clock: Clock
    window_seconds: float

    async def apply(self, key: str, at: str, step: Step, direction: Direction) -> Reply:
        """Apply a step or its compensation, or learn what it came to before.

        Raises Unavailable or OutcomeUnknown: ask again.
        """
        message = step_message(key, at, step, direction)
        return await self.in_time(step, self.settled(message, message))

    async def give_up(self, key: str, at: str, step: Step, reason: str) -> Reply:
        """See to it that a step never acts, unless it has; what it came to.

        A void takes the place of its command: it has the same id, so its session takes only one of
        the two, whichever comes first, and knows the other for a late one.
        """
        message = step_message(key, at, step, Direction.DO)
        return await self.in_time(step, self.settled(message, void_of(message, reason)))

    async def settled(self, message: Message, sent: Message) -> Reply:
        """What became of a command, after it or its void was sent."""
        too_late = too_old(message, self.clock.today(), self.window_seconds)
        if too_late is not None:
            return await self.recorded(message) or Reply(outcome=Outcome.UNKNOWN, reason=too_late)
        told = await self.commander.apply(sent)
        if sent == message and isinstance(told, Answered):
            return reply_of(told)
        # It may be that the other of the two was first.
        recorded = await self.recorded(message)
        if recorded is None:
            raise Unavailable(f"session {message.session!r} is not ready to say")
        return recorded

    async def recorded(self, message: Message) -> Reply | None:
        """What the session has recorded for a command or its void; None while it has nothing."""
        told = await recorded(self.journal, message)
        return reply_of(told) if told is not None else None

    async def in_time(self, step: Step, reply: Awaitable[Reply]) -> Reply:
        """The reply, if it comes within a try's time; else raises Unavailable."""
        try:
            async with asyncio.timeout(step.seconds):
                return await reply
        except TimeoutError:
            raise Unavailable(f"step {step.name!r} took over {step.seconds:g} s") from None


def void_of(message: Message, reason: str) -> Message:
    """What is sent so that a command never acts: its id without its content."""
    return replace(message, type=VOID_TYPE, body=json.dumps({"reason": reason}).encode())


def reply_of(told: Told) -> Reply:
    """What a session's answer means to a saga: an answer may be a refusal, a fault always is."""
    match told:
        case Answered(answer):
            refused = answer.get("refused")
            outcome = Outcome.DONE if refused is None else Outcome.REFUSED
            return Reply(outcome=outcome, reason=refused)
        case Failed(reason):
            return Reply(outcome=Outcome.REFUSED, reason=reason)
