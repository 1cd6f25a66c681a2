"""Histories to judge: two aircraft that fly as they should, before a defect is planted."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from demo.history import Cover, Entry, History, Sent, Status

AIRCRAFT = {"N14228": 4, "N24211": 3}


def sound_history() -> History:
    """Every message of both aircraft took effect once, in order, each on the one before."""
    sent = tuple(flown())
    return History(sent=sent, entries=tuple(effect(message) for message in sent))


def flown() -> Iterator[Sent]:
    """Everything both aircraft sent."""
    for session, count in AIRCRAFT.items():
        for sequence in range(count):
            yield message(session, sequence)


def message(session: str, sequence: int) -> Sent:
    """The message with a number."""
    name = f"{session}/{sequence}".encode()
    return Sent(session, sequence, sha256(name).hexdigest()[:32], sha256(b"#" + name).hexdigest())


def effect(sent: Sent, *, position: int | None = None, events: int | None = None) -> Entry:
    """The entry a message ends in; by default at its own number."""
    at = sent.sequence if position is None else position
    return Entry(
        session=sent.session,
        position=at,
        status=Status.COMPLETED,
        covers=(Cover(sent.id, sent.sequence, sent.digest),),
        events=at + 1 if events is None else events,
        region="east",
        at=1_000 + at,
    )


def with_entries(history: History, session: str, *entries: Entry) -> History:
    """The history with another journal for one session."""
    others = (entry for entry in history.entries if entry.session != session)
    return replace(history, entries=(*others, *entries))


def journal(history: History, session: str) -> list[Entry]:
    """The entries of one session."""
    return [entry for entry in history.entries if entry.session == session]
