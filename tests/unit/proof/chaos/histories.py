"""Histories as a flawless run would leave them, made by hand, to plant violations in."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

from proof.chaos.checker.history import (
    Baseline,
    EffectCopy,
    ErrorReport,
    HandlerRun,
    Leftovers,
    RunHistory,
    SentMessage,
    SessionHead,
)
from proof.chaos.messages import CHAIN_START, extend_chain

REGIONS = ("east", "west")
SESSIONS, EACH = 3, 6
# In every session this one fails, and this one calls the outside.
POISONED, EFFECTFUL = 2, 4
BASELINE_UNTIL = 1_000.0


def flawless() -> RunHistory:
    """Three sessions of six messages each: every promise holds."""
    sent = tuple(sent_in(f"N{n}") for n in range(SESSIONS))
    messages = tuple(one for own in sent for one in own)
    seen = tuple(copy for region in REGIONS for copy in copies_in(region, sent))
    return RunHistory(
        regions=REGIONS,
        sent=messages,
        seen=seen,
        reports=tuple(report(one, region) for one in poisoned(messages) for region in REGIONS),
        runs=tuple(
            HandlerRun(BASELINE_UNTIL - 1, one.session, one.id, f"key of {one.id}")
            for one in messages
            if one.sequence == EFFECTFUL
        ),
        heads={own[0].session: head(own) for own in sent},
        left=Leftovers(
            queued=dict.fromkeys(("east/lockstep", "west/lockstep"), 0),
            dead=dict.fromkeys(("east/lockstep", "west/lockstep"), 0),
            unfinished={"pending": (), "claimed": (), "parked": ()},
            kinds={"entry": SESSIONS * EACH, "genesis": SESSIONS, "ledger": SESSIONS},
            old_entries={},
        ),
        baseline=Baseline(BASELINE_UNTIL, {"abandon in east": 0}),
    )


def sent_in(session: str) -> tuple[SentMessage, ...]:
    """What is sent to a session."""
    return tuple(
        SentMessage(
            session=session,
            sequence=n,
            id=f"{session}-{n}",
            digest=sha256(f"{session} {n}".encode()).hexdigest(),
            is_poisoned=n == POISONED,
            calls_outside=n == EFFECTFUL,
            safe_at=BASELINE_UNTIL - 10,
        )
        for n in range(EACH)
    )


def poisoned(messages: tuple[SentMessage, ...]) -> Iterator[SentMessage]:
    """Those that are to fail."""
    return (one for one in messages if one.is_poisoned)


def copies_in(region: str, sent: tuple[tuple[SentMessage, ...], ...]) -> Iterator[EffectCopy]:
    """Every effect as it comes out of a region, one session after another."""
    number = 0
    for own in sent:
        linked = CHAIN_START
        for place, one in enumerate(one for one in own if not one.is_poisoned):
            linked = extend_chain(linked, one.id, one.digest)
            number += 1
            yield effect(one, region, number, place, linked)


def effect(one: SentMessage, region: str, number: int, place: int, linked: str) -> EffectCopy:
    """A copy of a message's effect."""
    return EffectCopy(
        at=BASELINE_UNTIL - 5,
        region=region,
        number=number,
        output=f"output of {one.id}",
        fingerprint=f"{one.id} {place} {linked}",
        session=one.session,
        place=place,
        sequence=one.sequence,
        id=one.id,
        digest=one.digest,
        chain=linked,
    )


def report(one: SentMessage, region: str) -> ErrorReport:
    """The report of a poisoned message."""
    return ErrorReport(
        region, f"report of {one.id}", one.id, one.session, one.id, "it was sent to fail"
    )


def head(own: tuple[SentMessage, ...]) -> SessionHead:
    """Where a session stands at the end."""
    linked, place = CHAIN_START, 0
    for one in own:
        if not one.is_poisoned:
            linked, place = extend_chain(linked, one.id, one.digest), place + 1
    return SessionHead(place, linked)


def without(history: RunHistory, lost: str, region: str | None = None) -> RunHistory:
    """The history without what was seen of a message, in one region or in both."""
    seen = tuple(s for s in history.seen if s.id != lost or region not in (None, s.region))
    return replace(history, seen=seen)


def rebuilt(history: RunHistory, session: str, order: tuple[int, ...]) -> RunHistory:
    """The history as if a session had applied these of its messages, in this order."""
    own = {one.sequence: one for one in history.sent if one.session == session}
    linked, effects = CHAIN_START, []
    for place, number in enumerate(order):
        linked = extend_chain(linked, own[number].id, own[number].digest)
        effects.append((own[number], place, linked))
    others = tuple(s for s in history.seen if s.session != session)
    copies = tuple(
        replace(effect(one, region, 10_000 + n, place, linked), at=BASELINE_UNTIL + 1)
        for region in REGIONS
        for n, (one, place, linked) in enumerate(effects)
    )
    heads = {**history.heads, session: SessionHead(len(order), linked)}
    return replace(history, seen=others + copies, heads=heads)
