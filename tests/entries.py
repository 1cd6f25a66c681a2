"""Entries and what belongs to them, as the tests of the journal write them."""

from dataclasses import replace

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
    PendingOutbox,
    address,
)
from shared.ports import StoredEntry, WriteResult
from shared.storage.journal import Journal
from tests.world import message, require

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


async def begin(
    journal: Journal, session: str, outbox: Outbox = NO_OUTBOX
) -> tuple[Entry, PendingOutbox]:
    """The first entry of a session, and what it owes."""
    entry = step(None, session, outbox=outbox)
    assert await journal.append(entry) is WriteResult.CREATED
    return entry, PendingOutbox(session, outbox, position=0)


def completed(opened: Entry, outbox: Outbox = NO_OUTBOX, **state: object) -> Entry:
    """The entry when its handler has returned this state."""
    return next_entry.complete(opened, HandlerResult(state, (), {}, {}), outbox)


def delivered(entry: Entry) -> Entry:
    """The entry when every region has its outputs."""
    return replace(entry, outbox=replace(entry.outbox, regions=()))


def parked(head: Entry | None, arriving: Message, attempt: str = "a") -> Entry:
    """The entry of a message whose turn has not come."""
    return next_entry.park(EntryInput(head, arriving, attempt_of(attempt)))


def taken(head: Entry | None, arriving: Message, attempt: str = "b") -> Entry:
    """The entry of a message that was parked, when its turn has come."""
    made_from = EntryInput(head, arriving, attempt_of(attempt), from_parked=True)
    return completed(next_entry.open_entry(made_from))


def attempt_of(name: str) -> Attempt:
    """A try in the east."""
    return Attempt(name, Owner("east", "east-1"))


def pending_in(session: str, *regions: str, first: int = 0) -> Outbox:
    """Two messages that some regions wait for."""
    messages = [message(n, session=session) for n in (first, first + 1)]
    return address("out", messages, regions)


def fault(head: Entry | None, session: str) -> Entry:
    """The entry of a message that failed and halts its session."""
    opened = next_entry.open_entry(EntryInput(head, message(0, session=session), attempt_of("a")))
    outbox = pending_in(session, "east", "west")
    return next_entry.fail(opened, reason="it burns", outbox=outbox, halts=True)


def outbox_to(session: str, *queues: str) -> Outbox:
    """A message for each of some queues, which both regions wait for."""
    sent = (message(n, session=session) for n in range(len(queues)))
    batches = tuple(DestinationBatch(q, (m,)) for q, m in zip(queues, sent, strict=True))
    return Outbox(batches, REGIONS)


def blocked_at(*queues: str, region: str = "east") -> Delivered:
    """One region has everything but what some queues do not take."""
    return Delivered((region,), blocked={region: dict.fromkeys(queues, "there is no such queue")})


def claim(session: str) -> Entry:
    """A claim of a session's first message."""
    made_from = EntryInput(None, message(0, session=session), attempt_of("a"))
    return next_entry.make_claim(next_entry.open_entry(made_from), Lease(30.0))


async def hold(journal: Journal, session: str) -> StoredEntry:
    """A claim of a session's first message, as it is stored."""
    await journal.append(claim(session))
    return require(await journal.stored_entry(session, 0))


def unnumbered(session: str, name: str) -> Message:
    """A message that its sender did not number."""
    return Message(name, session, "account.add", b'{"amount":1}', time="2026-01-01T00:00:00Z")


def arrival(head: Entry | None, arriving: Message, attempt: str) -> Entry:
    """The entry of an un-numbered message."""
    return completed(next_entry.open_entry(EntryInput(head, arriving, attempt_of(attempt))))
