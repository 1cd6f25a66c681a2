"""Histories as a flawless run would leave them, made by hand, to plant violations in."""

from dataclasses import replace

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
from proof.chaos.messages import CHAIN_START, FAILING, PURE, extend_chain, hash_content
from proof.chaos.messages import EFFECTFUL as CALLING

REGIONS = ("east", "west")
SESSIONS, EACH = 3, 6
# In every session this one fails, and this one calls the outside.
POISONED, EFFECTFUL = 2, 4
BODY = "{}"
BASELINE_UNTIL = 1_000.0


def flawless() -> RunHistory:
    """Three sessions of six messages each: every promise holds."""
    sessions = [f"N{n}" for n in range(SESSIONS)]
    messages = tuple(one for session in sessions for one in sent_in(session))
    queues = dict.fromkeys(("east/lockstep", "west/lockstep"), 0)
    history = RunHistory(
        regions=REGIONS,
        sent=messages,
        seen=(),
        reports=tuple(
            report(one, region) for one in messages if one.is_poisoned for region in REGIONS
        ),
        runs=tuple(
            HandlerRun(BASELINE_UNTIL - 1, one.session, one.id, f"key of {one.id}")
            for one in messages
            if one.calls_outside
        ),
        heads={},
        left=Leftovers(
            queued=queues,
            dead=queues,
            unfinished={"pending": (), "claimed": (), "parked": ()},
            kinds={"entry": SESSIONS * EACH, "genesis": SESSIONS, "ledger": SESSIONS},
            old_entries={},
        ),
        baseline=Baseline(BASELINE_UNTIL, {"abandon in east": 0}),
    )
    for session in sessions:
        sound = tuple(n for n in range(EACH) if n != POISONED)
        history = rebuilt(history, session, sound, at=BASELINE_UNTIL - 5)
    return history


def kind_of(n: int) -> str:
    return {POISONED: FAILING, EFFECTFUL: CALLING}.get(n, PURE)


def sent_in(session: str) -> tuple[SentMessage, ...]:
    return tuple(
        SentMessage(
            session=session,
            sequence=n,
            id=f"{session}-{n}",
            digest=hash_content(kind_of(n), BODY.encode()),
            is_poisoned=n == POISONED,
            calls_outside=n == EFFECTFUL,
            safe_at=BASELINE_UNTIL - 10,
        )
        for n in range(EACH)
    )


def report(one: SentMessage, region: str) -> ErrorReport:
    return ErrorReport(
        region, f"report of {one.id}", one.id, one.session, one.id, "it was sent to fail"
    )


def without(history: RunHistory, lost: str, region: str | None = None) -> RunHistory:
    """The history without what was seen of a message, in one region or in both."""
    seen = tuple(s for s in history.seen if s.id != lost or region not in (None, s.region))
    return replace(history, seen=seen)


def rebuilt(
    history: RunHistory, session: str, order: tuple[int, ...], at: float = BASELINE_UNTIL + 1
) -> RunHistory:
    """The history as if a session had applied these of its messages, in this order."""
    own = {one.sequence: one for one in history.sent if one.session == session}
    linked, copies = CHAIN_START, []
    for place, one in enumerate(own[number] for number in order):
        linked = extend_chain(linked, one.id, one.digest)
        copies += [
            EffectCopy(
                at=at,
                region=region,
                number=10_000 + 100 * int(session[1:]) + place,
                output=f"output of {one.id}",
                fingerprint=f"{one.id} {place} {linked}",
                session=one.session,
                place=place,
                sequence=one.sequence,
                id=one.id,
                digest=one.digest,
                chain=linked,
            )
            for region in REGIONS
        ]
    others = tuple(copy for copy in history.seen if copy.session != session)
    heads = {**history.heads, session: SessionHead(len(order), linked)}
    return replace(history, seen=(*others, *copies), heads=heads)
