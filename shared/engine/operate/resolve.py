"""What a person does about a fault: run it again, run it corrected, or go on without it."""

from dataclasses import dataclass, replace
from enum import StrEnum

from shared.domain import next_entry
from shared.domain.errors import InvalidMessage, NotHalted, Unavailable
from shared.domain.journal import Entry, Resolution, Status
from shared.domain.message import Message
from shared.engine.consume.consume import Consumer
from shared.ports import WriteResult

# Another worker can be first at the end of the journal a few times, not for ever.
TRIES = 10


class ResolutionAction(StrEnum):
    RETRY = "retry"
    EDIT = "edit"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class ResolutionRequest:
    """A person's decision; `body` is the corrected one of an edit.

    `at` is the position of the fault it is about; without it, it is about whatever stops the
    session when it is carried out.
    """

    action: ResolutionAction
    who: str
    why: str
    body: bytes | None = None
    at: int | None = None

    def __post_init__(self) -> None:
        if not self.who or not self.why:
            raise InvalidMessage("a resolution needs who decided and why")
        if (self.action is ResolutionAction.EDIT) != (self.body is not None):
            raise InvalidMessage("an edit needs a body, and nothing else may have one")


class Resolver:
    """Ends halts. What was parked behind the fault is drained before the answer."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.worker = consumer.worker

    async def resolve(self, session: str, decision: ResolutionRequest) -> Entry:
        """The entry that records the resolution.

        A message that fails again halts the session again, in the entry returned. Raises NotHalted
        when there is nothing to resolve, or another fault than the decision is about; Unavailable
        when other workers kept being first.
        """
        for _ in range(TRIES):
            entry = await self.try_once(session, decision)
            if entry is not None:
                await self.consumer.drain(session)
                return entry
        raise Unavailable(f"session {session!r} is contended", 1.0)

    async def try_once(self, session: str, decision: ResolutionRequest) -> Entry | None:
        """Resolve on the stored head; None when another worker was first."""
        head = await self.worker.read_head(session)
        fault, message = await self.read_fault(session, head, decision)
        made_from = replace(
            await self.consumer.parking.prepare(head, message),
            resolution=Resolution(decision.action.value, decision.who, decision.why),
            sent_digest=fault.identities[-1].digest,
        )
        if decision.action is ResolutionAction.SKIP:
            entry = next_entry.skip(next_entry.open_entry(made_from), decision.why)
            result = await self.consumer.committer.commit(head, entry)
            return entry if result is WriteResult.CREATED else None
        if decision.body is not None:
            made_from = replace(made_from, message=replace(message, body=decision.body))
        return await self.consumer.give_entry(made_from)

    async def read_fault(
        self, session: str, head: Entry | None, decision: ResolutionRequest
    ) -> tuple[Entry, Message]:
        """The fault that stops the session, and the message it holds."""
        if head is None or head.halt is None:
            raise NotHalted(f"session {session!r} is not halted")
        if decision.at not in (None, head.halt.at):
            raise NotHalted(f"session {session!r} is halted by entry {head.halt.at}")
        fault = await self.worker.journal.entry(session, head.halt.at)
        if fault is None or fault.status is not Status.FAULTED or fault.message is None:
            raise Unavailable(f"the fault of session {session!r} cannot be read", 1.0)
        return fault, fault.message
