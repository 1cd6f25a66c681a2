"""Apply a message to a session at once and learn what its handler answered, however often asked.

For coordinators, such as a saga's steps: the command has an id of its own, so applying it again
acts once and gives the answer that was recorded.
"""

from dataclasses import dataclass

from shared.domain.errors import InvalidMessage, Unavailable
from shared.domain.handler import Kind
from shared.domain.journal import Json, Status
from shared.domain.message import Message
from shared.engine.consume.consume import Consumer
from shared.engine.consume.outcomes import Conflicting, Expired
from shared.ports import Entries

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


type CommandReply = Answered | Failed


class Commands:
    """Applies commands for one worker."""

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
        outcome = await self.consumer.consume(command)
        if isinstance(outcome, Conflicting | Expired):
            return Failed(outcome.reason)
        reply = await read_reply(self.worker.journal, command)
        if reply is None:
            raise Unavailable(f"session {command.session!r} waits", RETRY_SECONDS)
        return reply


async def read_reply(entries: Entries, command: Message) -> CommandReply | None:
    """What a session has recorded for a command, or for another with its id; None for nothing.

    Also None while its entry has not ended, or halts the session: a person may run it again.
    """
    marker = await entries.marker(command.session, command.id)
    entry = await entries.entry(command.session, marker.position) if marker else None
    # The marker of one that waits beside a claim names the claim, which answers another message.
    if entry is None or all(identity.id != command.id for identity in entry.identities):
        return None
    if entry.halt is not None and entry.halt.at == entry.position:
        return None
    match entry.status:
        case Status.COMPLETED:
            return Answered(entry.answer or {})
        case Status.FAULTED | Status.SKIPPED:
            return Failed(entry.reason or "refused")
        case Status.PARKED | Status.WORKING:
            return None
