"""Apply a message to a session at once and learn what its handler said, however often it is asked.

For coordinators, such as a saga's steps: the command has an id of its own, so applying it again
acts once and gives the answer that was recorded.
"""

from dataclasses import dataclass

from shared.domain.errors import InvalidMessage, Unavailable
from shared.domain.handling import Kind
from shared.domain.journal import Entry, Json, Status
from shared.domain.message import Message
from shared.ports import Journal
from shared.usecases.consume import Consumer
from shared.usecases.outcomes import Conflicting, Expired

# The session is halted, or somebody else works on it: worth another try after about so long.
RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Answered:
    """The command took effect; `answer` is what its handler said, if anything."""

    answer: Json


@dataclass(frozen=True, slots=True)
class Failed:
    """The command never will take effect; the reason is in the journal, too."""

    reason: str


type Reply = Answered | Failed


class Commander:
    """Applies commands."""

    def __init__(self, journal: Journal, consumer: Consumer) -> None:
        self.journal = journal
        self.consumer = consumer

    async def apply(self, command: Message) -> Reply:
        """Apply a message that carries no number, unless that was done before.

        One whose handler is idempotent fails, and is not run: nobody could know whether it acted.
        Raises InvalidMessage for one that can never be taken, Unavailable where the session cannot
        take it now or the store did not help, OutcomeUnknown: apply the same again.
        """
        if command.number is not None:
            raise InvalidMessage("a command carries no producer number")
        if self.consumer.processor.kind_of(command) is Kind.IDEMPOTENT:
            return Failed(f"the handler of {command.type!r} is idempotent: it leaves no record")
        outcome = await self.consumer.consume(command)
        if isinstance(outcome, Conflicting | Expired):
            return Failed(outcome.reason)
        reply = await recorded(self.journal, command)
        if reply is None:
            raise Unavailable(f"session {command.session!r} waits", RETRY_SECONDS)
        return reply


async def recorded(journal: Journal, command: Message) -> Reply | None:
    """What a session has recorded for a command, or for another with its id; None for nothing.

    The marker of one that waits beside a claim names the claim, which answers another message.
    """
    mark = await journal.marked(command.session, command.id)
    entry = await journal.entry(command.session, mark.position) if mark else None
    is_answer = entry is not None and any(one.id == command.id for one in entry.covers)
    return reply_in(entry) if is_answer else None


def reply_in(entry: Entry | None) -> Reply | None:
    """What an entry answers; None while it has not ended: a person may run a fault again."""
    if entry is None or (entry.halt is not None and entry.halt.at == entry.position):
        return None
    match entry.status:
        case Status.COMPLETED:
            return Answered(entry.answer or {})
        case Status.FAULTED | Status.SKIPPED:
            return Failed(entry.reason or "refused")
        case Status.PARKED | Status.WORKING:
            return None
