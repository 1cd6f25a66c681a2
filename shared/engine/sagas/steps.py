"""Commands, and a saga's steps, which are commands to the sessions they concern.

A command is a message that is applied at once and answered. It has an id of its own, so applying it
again acts once and gives the reply that its session recorded: the same for every caller, however
often. A step is applied, given up for good, or undone in this way.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Any

from shared.domain.errors import InvalidMessage, Unavailable
from shared.domain.handler import Kind
from shared.domain.journal import Entry, Json, Status
from shared.domain.message import Message
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
from shared.engine.consume.outcomes import Conflicting, Expired, Faulted, Processed, Refused
from shared.storage.journal import Journal

# Why a step was given up whose tries all failed.
NO_ANSWER = "its session gave no answer"
# The session is halted, or somebody else works on it: worth another try after about so long.
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answered:
    """The command took effect; `answer` is what its handler answered, if anything."""

    answer: Json


@dataclass(frozen=True, slots=True)
class Failed:
    """The command never will take effect; the reason is in the journal, too."""

    reason: str


@dataclass(frozen=True, slots=True)
class TooOld:
    """The command is older than the window: its session can no longer say whether it acted."""

    reason: str


type CommandReply = Answered | Failed | TooOld


class Commands:
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.worker = consumer.worker

    async def apply(self, command: Message) -> CommandReply:
        """Apply a message that carries no number, unless that was done before.

        One whose handler is idempotent fails, and is not run: nobody could know whether it acted.
        Raises InvalidMessage for one that can never be taken, Unavailable where the session cannot
        take it now or the store did not help, OutcomeUnknown: apply the same again.
        """
        if command.number is not None:
            raise InvalidMessage("a command carries no producer number")
        if self.worker.handlers.kind_of(command.type) is Kind.IDEMPOTENT:
            return Failed(f"the handler of {command.type!r} is idempotent: it leaves no record")
        is_careful = self.worker.clock.now() < self.worker.careful_until
        outcome = await self.consumer.consume(command, as_try=int(is_careful))
        if isinstance(outcome, Conflicting):
            return Failed(outcome.reason)
        if isinstance(outcome, Processed | Faulted | Refused):
            reply = reply_in(outcome.entry)
        else:
            reply = await read_reply(self.worker.journal, command)
        if isinstance(outcome, Expired):
            # Its marker may be gone, but its entry may still be there.
            return reply or TooOld(outcome.reason)
        if reply is None:
            raise Unavailable(f"session {command.session!r} waits", RETRY_SECONDS)
        return reply


async def read_reply(journal: Journal, command: Message) -> Answered | Failed | None:
    """Return the reply recorded for a command, or for the tombstone that gave it up.

    Other content under its id is somebody else's: then the command never acts, so it has failed.
    None for nothing, and while its entry has not ended or halts the session: a person may run it
    again.
    """
    marker = await journal.marker(command.session, command.id, command.source)
    recorded = marker.identity if marker else None
    # A tombstone has the place of the command itself: only we send these.
    if recorded and recorded.digest != command.digest and recorded.type != TOMBSTONE_TYPE:
        return Failed("its id was used before with other content")
    entry = await journal.entry(command.session, marker.position) if marker else None
    # The marker of one that waits beside a claim names the claim, which answers another message.
    if marker is None or entry is None or marker.identity not in entry.identities:
        return None
    return reply_in(entry)


def reply_in(entry: Entry) -> Answered | Failed | None:
    """Return an entry's reply to its command; None if it has not ended, or halts the session."""
    if entry.halt is not None and entry.halt.at == entry.position:
        return None
    match entry.status:
        case Status.COMPLETED:
            return Answered(entry.answer or {})
        case Status.FAULTED | Status.SKIPPED:
            return Failed(entry.reason or "refused")
        case Status.PARKED | Status.WORKING:
            return None


class SagaSteps:
    def __init__(self, commands: Commands) -> None:
        self.commands = commands

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
        if self.commands.worker.telemetry is not None:
            command = replace(command, traceparent=traceparent_of(work["key"]))
        sent = command
        if give_up is not None:
            body = json.dumps({"reason": give_up}).encode()
            sent = replace(command, type=TOMBSTONE_TYPE, body=body)
        try:
            async with asyncio.timeout(step.seconds):
                reply: CommandReply | None = await self.commands.apply(sent)
                if isinstance(reply, Failed) or (give_up and isinstance(reply, Answered)):
                    # It may be that the other of command and tombstone was first.
                    reply = await read_reply(self.commands.worker.journal, command)
        except TimeoutError:
            raise Unavailable(f"step {step.name!r} took over {step.seconds:g} s") from None
        if reply is None:
            raise Unavailable(f"session {command.session!r} is not ready to answer")
        return interpret(reply).model_dump(mode="json")

    async def give_up(self, work: dict[str, Any]) -> dict[str, Any]:
        """Perform the giving up of a step whose tries all failed."""
        return await self.perform(work, give_up=NO_ANSWER)


def interpret(reply: CommandReply) -> StepReply:
    """Return what a reply means to a saga: an answer may be a refusal, a fault always is."""
    match reply:
        case Answered(answer):
            refused = answer.get("refused")
            outcome = StepOutcome.DONE if refused is None else StepOutcome.REFUSED
            return StepReply(outcome=outcome, reason=refused)
        case Failed(reason):
            return StepReply(outcome=StepOutcome.REFUSED, reason=reason)
        case TooOld(reason):
            return StepReply(outcome=StepOutcome.UNKNOWN, reason=reason)
