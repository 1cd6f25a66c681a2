"""Histories to check_history: two aircraft that fly as they should, before a defect is planted."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from proof.demo.checker import AppliedMessage, DemoHistory, HeldMessage, StoredEntry, StoredStatus
from proof.testbed.flights import FlightMessage

AIRCRAFT = {"N14228": 4, "N24211": 3}


def sound_history() -> DemoHistory:
    """Every message of both aircraft took effect once, in order, each on the one before."""
    sent = tuple(flown())
    return DemoHistory(sent=sent, entries=tuple(effect(message) for message in sent))


def flown() -> Iterator[FlightMessage]:
    for session, count in AIRCRAFT.items():
        for sequence in range(count):
            yield message(session, sequence)


def message(session: str, sequence: int) -> FlightMessage:
    name = f"{session}/{sequence}".encode()
    return FlightMessage(
        session, sequence, sha256(name).hexdigest()[:32], sha256(b"#" + name).hexdigest()
    )


def held(session: str, sequence: int) -> HeldMessage:
    """The message with a number, as it lies in a queue, parked or pending."""
    return HeldMessage(session, message(session, sequence).id)


def effect(
    sent: FlightMessage, *, position: int | None = None, events: int | None = None
) -> StoredEntry:
    """The entry a message ends in; by default at its own number."""
    at = sent.sequence if position is None else position
    return StoredEntry(
        session=sent.session,
        position=at,
        status=StoredStatus.COMPLETED,
        covers=(AppliedMessage(sent.id, sent.sequence, sent.digest),),
        events=at + 1 if events is None else events,
        region="east",
        at=1_000 + at,
    )


def with_entries(history: DemoHistory, session: str, *entries: StoredEntry) -> DemoHistory:
    """The history with another journal for one session."""
    others = (entry for entry in history.entries if entry.session != session)
    return replace(history, entries=(*others, *entries))


def journal(history: DemoHistory, session: str) -> list[StoredEntry]:
    return [entry for entry in history.entries if entry.session == session]
