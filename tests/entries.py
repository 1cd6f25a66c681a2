"""Entries and what belongs to them, as the tests of the journal write them."""

from collections.abc import Sequence

from shared.domain import next_entry
from shared.domain.handler import HandlerResult
from shared.domain.journal import Attempt, Entry, Lease, Owner
from shared.domain.message import Message
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import (
    NO_OUTBOX,
    Delivered,
    DestinationBatch,
    Outbox,
    OutputAction,
    OutputDecision,
    address,
)
from shared.domain.standstill import Sign
from shared.ports import SessionNeed
from shared.storage.journal import Journal
from tests.world import message

REGIONS = ("east", "west")


def step(head: Entry | None, session: str, attempt: str = "a", outbox: Outbox = NO_OUTBOX) -> Entry:
    """The next entry of a session."""
    position = head.position + 1 if head else 0
    opened = next_entry.open_entry(
        EntryInput(head, message(position, session=session), attempt_of(attempt))
    )
    state = {"amounts": list(range(position + 1)), "note": "Zoë"}
    return next_entry.complete(
        opened, HandlerResult(state, (), {"": {"other": position}}, {}), outbox
    )


def attempt_of(name: str) -> Attempt:
    """A try in the east."""
    return Attempt(name, Owner("east", "east-1"))


def pending_in(session: str, *regions: str, first: int = 0) -> Outbox:
    """Two messages that some regions wait for."""
    messages: tuple[Message, ...] = (
        message(first, session=session),
        message(first + 1, session=session),
    )
    return address("out", messages, regions)


SOUGHT = (SessionNeed.RESOLUTION, SessionNeed.DRAINING, SessionNeed.DELIVERY)
# Older than anything, and younger than everything: clocks tell whole seconds.
LATE, EARLY = 3_600.0, -5.0


async def find_signs(
    journal: Journal, session: str, older_than_seconds: float = LATE
) -> Sequence[Sign]:
    """Everything that one session shows."""
    return await journal.signs(
        SOUGHT, REGIONS, session=session, older_than_seconds=older_than_seconds, limit=100
    )


def fault(head: Entry | None, session: str, sequence: int = 0) -> Entry:
    """The entry of a message that failed and halts its session."""
    made_from = EntryInput(head, message(sequence, session=session), attempt_of("a"))
    outbox = pending_in(session, "east", "west")
    return next_entry.fail(
        next_entry.open_entry(made_from), reason="it burns", outbox=outbox, halts=True
    )


WHY = "there is no such queue"
DECISION = OutputDecision(OutputAction.REDIRECT, "Ada", "it moved", "other")


def outbox_to(session: str, *queues: str) -> Outbox:
    """A message for each of some queues, which both regions wait for."""
    sent = (message(n, session=session) for n in range(len(queues)))
    batches = tuple(DestinationBatch(q, (m,)) for q, m in zip(queues, sent, strict=True))
    return Outbox(batches, REGIONS)


def blocked_at(*queues: str, region: str = "east") -> Delivered:
    """One region has everything but what some queues do not take."""
    return Delivered((region,), blocked={region: dict.fromkeys(queues, WHY)})


def claim(session: str, *, attempt: str = "a") -> Entry:
    """A claim of a session's first message."""
    opened = next_entry.open_entry(
        EntryInput(None, message(0, session=session), attempt_of(attempt))
    )
    return next_entry.make_claim(opened, Lease(30.0))


def unnumbered(session: str, name: str) -> Message:
    """A message that its sender did not number."""
    return Message(name, session, "account.add", b'{"amount":1}', time="2026-01-01T00:00:00Z")


def arrival(head: Entry | None, arriving: Message, attempt: str) -> Entry:
    """The entry of an un-numbered message."""
    opened = next_entry.open_entry(EntryInput(head, arriving, attempt_of(attempt)))
    return next_entry.complete(opened, HandlerResult({}, (), {}, {}), NO_OUTBOX)
