"""A person who looks after faults: runs them again, corrects them, or lets them go."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shared.domain.errors import LockstepError
from shared.domain.message import Message
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from simulation.process import Process

if TYPE_CHECKING:
    from simulation.world import World

LOOK_SECONDS = 10.0
# An outage is no reason to skip a message, so every fault is run again this often.
RETRIES = 2
REGION = "east"

type Correct = Callable[[Message], bytes | None]


def uncorrected(_: Message) -> bytes | None:
    """Nothing is worth correcting."""
    return None


@dataclass
class Operator:
    """Resolves what stops a session. `corrections` are the bodies given, by session and id."""

    world: "World"
    correct: Correct
    corrections: dict[tuple[str, str], bytes] = field(default_factory=dict)
    looks: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def work(self) -> None:
        """Look at all halted sessions now and then."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            process = self.world.new_process("operator", REGION)
            for session, message, at in self.halted():
                await process.start(self.resolve(process, session, self.decide(message, at)))

    def halted(self) -> list[tuple[str, Message, int]]:
        """Sessions that wait for a person, the messages that stop them, and where each failed."""
        journal = self.world.journal
        heads = [journal.newest(session) for session in list(journal.partitions)]
        found: list[tuple[str, Message, int]] = []
        for head in heads:
            if head is not None and head.halt is not None:
                fault = journal.entry_at(head.session, head.halt.at)
                if fault is not None and fault.message is not None:
                    found.append((head.session, fault.message, head.halt.at))
        return found

    def decide(self, message: Message, at: int) -> ResolutionRequest:
        """Try again at first; then correct what can be corrected, and let the rest go."""
        key = (message.session, message.id)
        self.looks[key] += 1
        if self.looks[key] <= RETRIES:
            return ResolutionRequest(
                ResolutionAction.RETRY, "operator", "perhaps it was the weather", at=at
            )
        body = self.correct(message)
        if body is None:
            return ResolutionRequest(
                ResolutionAction.SKIP, "operator", "it cannot be helped", at=at
            )
        self.corrections[key] = body
        return ResolutionRequest(ResolutionAction.EDIT, "operator", "it was wrong", body, at)

    async def resolve(self, process: Process, session: str, decision: ResolutionRequest) -> None:
        """Resolve one fault, or leave it for the next time."""
        try:
            await self.world.services(process).resolver.resolve(session, decision)
        except LockstepError:
            return
