"""Mutants of a flawless history: the checker names the promise that was broken, and no other."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from proof.chaos.checker.history import (
    Baseline,
    ErrorReport,
    HandlerRun,
    RunHistory,
    SentMessage,
    SessionHead,
)
from proof.chaos.checker.promises import PROMISES, check_history
from tests.unit.proof.chaos.histories import (
    BASELINE_UNTIL,
    EFFECTFUL,
    flawless,
    rebuilt,
    report,
    sent_in,
    without,
)

type Mutate = Callable[[RunHistory], RunHistory]
NAMES = [promise.name for promise in PROMISES]
LATER = BASELINE_UNTIL + 1


def broken(history: RunHistory) -> dict[str, int]:
    """Violations by promise, where there are any."""
    return {f.promise.name: f.violations for f in check_history(history) if f.violations}


def changed(history: RunHistory, name: str, *regions: str, **fields: object) -> RunHistory:
    """What was seen of a message in some regions, changed."""
    seen = (
        replace(s, **fields) if s.id == name and s.region in regions else s  # type: ignore[arg-type]
        for s in history.seen
    )
    return replace(history, seen=tuple(sorted(seen, key=lambda one: (one.region, one.number))))


def again(history: RunHistory, name: str, **fields: object) -> RunHistory:
    """One more copy of what was seen of a message in the east."""
    (first,) = (s for s in history.seen if (s.id, s.region) == (name, "east"))
    copy = replace(first, **{"number": 20_000, **fields})  # type: ignore[arg-type]
    return replace(history, seen=(*history.seen, copy))


def with_head(history: RunHistory, session: str, place: int, chain: str) -> RunHistory:
    return replace(history, heads={**history.heads, session: SessionHead(place, chain)})


def with_run(history: RunHistory, name: str, key: str) -> RunHistory:
    return replace(history, runs=(*history.runs, HandlerRun(LATER, "N1", name, key)))


def leaving(history: RunHistory, kind: str, **found: object) -> RunHistory:
    kept = {**getattr(history.left, kind), **{k.replace("_", "/"): v for k, v in found.items()}}
    return replace(history, left=replace(history.left, **{kind: kept}))


def with_report(
    history: RunHistory, *more: ErrorReport, but: tuple[str, str] = ("", "")
) -> RunHistory:
    """Reports more, and one less."""
    kept = tuple(r for r in history.reports if (r.of, r.region) != but)
    return replace(history, reports=(*kept, *more))


def one_of(history: RunHistory, name: str) -> SentMessage:
    (found,) = (one for one in history.sent if one.id == name)
    return found


def lost_as_a_whole_session(history: RunHistory) -> RunHistory:
    heads = {session: head for session, head in history.heads.items() if session != "N1"}
    seen = tuple(s for s in history.seen if s.session != "N1")
    return replace(history, heads=heads, seen=seen)


def never_begun(history: RunHistory) -> RunHistory:
    (ghost,) = (one for one in sent_in("N9") if one.sequence == 0)
    known = replace(ghost, is_begun=False, safe_at=None)
    copied = again(history, "N1-0", id=known.id, session="N9", output="ghost")
    return replace(copied, sent=(*history.sent, known))


def poison_with_an_effect(history: RunHistory) -> RunHistory:
    poison = one_of(history, "N1-2")
    fields = {"id": poison.id, "digest": poison.digest, "sequence": poison.sequence, "place": 5}
    return again(history, "N1-5", output="of poison", **fields)


PLANTED: Mapping[str, Mapping[str, Mutate]] = {
    "P1": {
        "lost in the middle": lambda h: rebuilt(h, "N1", (0, 1, 4, 5)),
        "lost at the end": lambda h: rebuilt(h, "N1", (0, 1, 3, 4)),
        "lost as a whole session": lost_as_a_whole_session,
        "lost from its state": lambda h: replace(h, heads=rebuilt(h, "N1", (0, 1, 3, 4)).heads),
        "never reached the outside": lambda h: replace(
            h, runs=tuple(r for r in h.runs if r.session != "N1")
        ),
    },
    "P2": {
        "applied twice": lambda h: rebuilt(h, "N1", (0, 1, 3, 3, 4, 5)),
        "applied again at the end": lambda h: rebuilt(h, "N1", (0, 1, 3, 4, 5, 0)),
        "sent under two ids": lambda h: again(h, "N1-3", output="another", at=LATER),
        "counted twice in its state": lambda h: with_head(h, "N1", 6, "whatever"),
    },
    "P3": {
        "swapped": lambda h: rebuilt(h, "N1", (0, 3, 1, 4, 5)),
        "came out late": lambda h: changed(h, "N1-1", "west", number=30_000),
        "built on something else": lambda h: with_head(h, "N1", 5, "something else"),
    },
    "P4": {
        "other bytes in the west": lambda h: changed(h, "N1-3", "west", fingerprint="other bytes"),
        "other bytes in a repeat": lambda h: again(h, "N1-3", fingerprint="other", at=LATER),
        "another key in a repeat": lambda h: with_run(h, f"N1-{EFFECTFUL}", "another key"),
    },
    "P5": {
        "nobody sent it": lambda h: again(
            h, "N1-5", id="nobody's", output="ghost", place=5, at=LATER
        ),
        "never begun": never_begun,
        "nobody asked for the run": lambda h: with_run(h, "nobody's", "a key"),
        "a session out of nothing": lambda h: with_head(h, "N9", 1, "something"),
        "other content": lambda h: changed(h, "N1-3", "east", "west", digest="other content"),
        "missing in the west": lambda h: without(h, "N1-3", "west"),
        "state without output": lambda h: without(h, "N1-3"),
        "newest state without output": lambda h: without(h, "N1-5"),
    },
    "P6": {
        "waiting in a queue": lambda h: leaving(h, "queued", west_lockstep=3),
        "pending for ever": lambda h: leaving(h, "unfinished", pending=("N1/000000000003",)),
    },
    "P7": {
        "abandoned without faults": lambda h: replace(
            h, baseline=Baseline(BASELINE_UNTIL, {"abandon in east": 1})
        ),
        "sent twice without faults": lambda h: again(h, "N1-3"),
        "run twice without faults": lambda h: replace(h, runs=(*h.runs, h.runs[0])),
    },
    "P8": {
        "too many old entries": lambda h: leaving(h, "old_entries", N1=201),
        "markers for numbered messages": lambda h: leaving(h, "kinds", marker=1),
        "a ledger too many": lambda h: leaving(h, "kinds", ledger=4),
    },
    "P9": {
        "poison unnamed in the west": lambda h: with_report(h, but=("N1-2", "west")),
        "poison named without a reason": lambda h: replace(
            h, reports=tuple(replace(r, reason="") if r.of == "N1-2" else r for r in h.reports)
        ),
        "poison with an effect": poison_with_an_effect,
        "a sound message named": lambda h: with_report(h, report(one_of(h, "N1-3"), "east")),
        "something rejected": lambda h: with_report(
            h, ErrorReport("east", "r", "f", "N1", None, "no message of ours")
        ),
        "dead-lettered": lambda h: leaving(h, "dead", east_lockstep=1),
    },
}


def test_a_flawless_history_keeps_every_promise_and_something_was_checked_for_each() -> None:
    results = check_history(flawless())

    assert [f.promise.name for f in results] == NAMES == list(PLANTED)
    assert broken(flawless()) == {}
    assert all(result.checked for result in results)


@pytest.mark.parametrize(
    ("name", "lie"), [(name, lie) for name, lies in PLANTED.items() for lie in lies]
)
def test_the_checker_names_the_promise_that_was_broken_and_no_other(name: str, lie: str) -> None:
    assert list(broken(PLANTED[name][lie](flawless()))) == [name]


def test_an_operation_whose_fate_nobody_knows_may_or_may_not_have_had_an_effect() -> None:
    history = flawless()
    sent = tuple(replace(s, safe_at=None) if s.id == "N1-5" else s for s in history.sent)
    unknown = replace(history, sent=sent)

    assert broken(unknown) == {}
    assert broken(rebuilt(unknown, "N1", (0, 1, 3, 4))) == {}


def test_what_a_queue_refused_for_a_while_may_come_out_late_there_and_nowhere_else() -> None:
    late = PLANTED["P3"]["came out late"](flawless())

    assert broken(replace(late, refusing=frozenset({"west"}))) == {}
    assert [*broken(replace(late, refusing=frozenset({"east"})))] == ["P3"]


def test_repeats_after_the_baseline_are_no_violation() -> None:
    repeated = again(flawless(), "N1-3", at=LATER)
    run = replace(repeated.runs[0], at=LATER)

    assert broken(replace(repeated, runs=(*repeated.runs, run))) == {}


def test_findings_count_every_violation_and_name_a_few() -> None:
    missing = flawless()
    for name in ("N0-1", "N1-3", "N2-5"):
        missing = without(missing, name, "west")

    (result,) = (f for f in check_history(missing) if f.violations)

    assert result.violations == 3
    assert result.examples == tuple(
        f"{name} missing in west" for name in ("N0 message 1", "N1 message 3", "N2 message 5")
    )
    assert "P5 no ghosts" in str(result)
