"""Mutants of a flawless history: the checker names the promise that was broken, and no other."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from proof.chaos.checker.history import (
    Baseline,
    EffectCopy,
    ErrorReport,
    HandlerRun,
    RunHistory,
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


def broken(history: RunHistory) -> dict[str, int]:
    """Violations by promise, where there are any."""
    return {f.promise.name: f.violations for f in check_history(history) if f.violations}


def changed(history: RunHistory, name: str, region: str, **fields: object) -> RunHistory:
    """What was seen of a message in a region, changed."""
    seen = tuple(
        replace(s, **fields) if (s.id, s.region) == (name, region) else s  # type: ignore[arg-type]
        for s in history.seen
    )
    return replace(history, seen=arrived(seen))


def arrived(seen: Iterable[EffectCopy]) -> tuple[EffectCopy, ...]:
    """In the order of arrival."""
    return tuple(sorted(seen, key=lambda one: (one.region, one.number)))


def again(history: RunHistory, name: str, **fields: object) -> RunHistory:
    """One more copy of what was seen of a message in the east."""
    (first,) = (s for s in history.seen if (s.id, s.region) == (name, "east"))
    copy = replace(first, **{"number": 20_000, **fields})  # type: ignore[arg-type]
    return replace(history, seen=arrived((*history.seen, copy)))


def lost_in_the_middle(history: RunHistory) -> RunHistory:
    return rebuilt(history, "N1", (0, 1, 4, 5))


def lost_at_the_end(history: RunHistory) -> RunHistory:
    return rebuilt(history, "N1", (0, 1, 3, 4))


def lost_as_a_whole_session(history: RunHistory) -> RunHistory:
    heads = {session: head for session, head in history.heads.items() if session != "N1"}
    seen = tuple(s for s in history.seen if s.session != "N1")
    return replace(history, heads=heads, seen=seen)


def lost_from_its_state(history: RunHistory) -> RunHistory:
    earlier = rebuilt(history, "N1", (0, 1, 3, 4)).heads
    return replace(history, heads=earlier)


def never_reached_the_outside(history: RunHistory) -> RunHistory:
    return replace(history, runs=tuple(r for r in history.runs if r.session != "N1"))


def applied_twice(history: RunHistory) -> RunHistory:
    return rebuilt(history, "N1", (0, 1, 3, 3, 4, 5))


def applied_again_at_the_end(history: RunHistory) -> RunHistory:
    return rebuilt(history, "N1", (0, 1, 3, 4, 5, 0))


def sent_under_two_ids(history: RunHistory) -> RunHistory:
    late = {"output": "another", "at": BASELINE_UNTIL + 1}
    return again(history, "N1-3", **late)


def counted_twice_in_its_state(history: RunHistory) -> RunHistory:
    return replace(history, heads={**history.heads, "N1": SessionHead(6, "whatever")})


def swapped(history: RunHistory) -> RunHistory:
    return rebuilt(history, "N1", (0, 3, 1, 4, 5))


def came_out_late(history: RunHistory) -> RunHistory:
    return changed(history, "N1-1", "west", number=30_000)


def built_on_something_else(history: RunHistory) -> RunHistory:
    return replace(history, heads={**history.heads, "N1": SessionHead(5, "something else")})


def other_bytes_in_the_west(history: RunHistory) -> RunHistory:
    return changed(history, "N1-3", "west", fingerprint="other bytes")


def other_bytes_in_a_repeat(history: RunHistory) -> RunHistory:
    return again(history, "N1-3", fingerprint="other bytes", at=BASELINE_UNTIL + 1)


def another_key_in_a_repeat(history: RunHistory) -> RunHistory:
    run = HandlerRun(BASELINE_UNTIL + 1, "N1", f"N1-{EFFECTFUL}", "another key")
    return replace(history, runs=(*history.runs, run))


def nobody_sent_it(history: RunHistory) -> RunHistory:
    return again(history, "N1-5", id="nobody's", output="ghost", place=5, at=BASELINE_UNTIL + 1)


def nobody_asked_for_the_run(history: RunHistory) -> RunHistory:
    ghost = HandlerRun(BASELINE_UNTIL + 1, "N1", "nobody's", "a key")
    return replace(history, runs=(*history.runs, ghost))


def a_session_out_of_nothing(history: RunHistory) -> RunHistory:
    return replace(history, heads={**history.heads, "N9": SessionHead(1, "something")})


def never_begun(history: RunHistory) -> RunHistory:
    (ghost,) = (one for one in sent_in("N9") if one.sequence == 0)
    known = replace(ghost, is_begun=False, safe_at=None)
    (first,) = (s for s in history.seen if (s.id, s.region) == ("N1-0", "east"))
    copy = replace(first, id=known.id, session="N9", output="ghost", number=20_000)
    return replace(history, sent=(*history.sent, known), seen=(*history.seen, copy))


def other_content(history: RunHistory) -> RunHistory:
    mutant = changed(history, "N1-3", "east", digest="other content")
    return changed(mutant, "N1-3", "west", digest="other content")


def missing_in_the_west(history: RunHistory) -> RunHistory:
    return without(history, "N1-3", "west")


def state_without_output(history: RunHistory) -> RunHistory:
    return without(history, "N1-3")


def newest_state_without_output(history: RunHistory) -> RunHistory:
    return without(history, "N1-5")


def waiting_in_a_queue(history: RunHistory) -> RunHistory:
    queued = {**history.left.queued, "west/lockstep": 3}
    return replace(history, left=replace(history.left, queued=queued))


def pending_for_ever(history: RunHistory) -> RunHistory:
    unfinished = {**history.left.unfinished, "pending": ("N1/000000000003",)}
    return replace(history, left=replace(history.left, unfinished=unfinished))


def abandoned_without_faults(history: RunHistory) -> RunHistory:
    return replace(history, baseline=Baseline(BASELINE_UNTIL, {"abandon in east": 1}))


def sent_twice_without_faults(history: RunHistory) -> RunHistory:
    return again(history, "N1-3")


def run_twice_without_faults(history: RunHistory) -> RunHistory:
    return replace(history, runs=(*history.runs, history.runs[0]))


def too_many_old_entries(history: RunHistory) -> RunHistory:
    return replace(history, left=replace(history.left, old_entries={"N1": 201}))


def markers_for_numbered_messages(history: RunHistory) -> RunHistory:
    kinds = {**history.left.kinds, "marker": 1}
    return replace(history, left=replace(history.left, kinds=kinds))


def a_ledger_too_many(history: RunHistory) -> RunHistory:
    kinds = {**history.left.kinds, "ledger": 4}
    return replace(history, left=replace(history.left, kinds=kinds))


def poison_unnamed_in_the_west(history: RunHistory) -> RunHistory:
    reports = tuple(r for r in history.reports if (r.of, r.region) != ("N1-2", "west"))
    return replace(history, reports=reports)


def poison_named_without_a_reason(history: RunHistory) -> RunHistory:
    reports = tuple(replace(r, reason="") if r.of == "N1-2" else r for r in history.reports)
    return replace(history, reports=reports)


def poison_with_an_effect(history: RunHistory) -> RunHistory:
    (poison,) = (one for one in history.sent if one.id == "N1-2")
    fields = {"id": poison.id, "digest": poison.digest, "sequence": poison.sequence, "place": 5}
    return again(history, "N1-5", output="of poison", **fields)


def a_sound_message_named(history: RunHistory) -> RunHistory:
    (sound,) = (one for one in history.sent if one.id == "N1-3")
    return replace(history, reports=(*history.reports, report(sound, "east")))


def something_rejected(history: RunHistory) -> RunHistory:
    rejected = ErrorReport("east", "r", "f", "N1", None, "no message of ours")
    return replace(history, reports=(*history.reports, rejected))


def dead_lettered(history: RunHistory) -> RunHistory:
    dead = {**history.left.dead, "east/lockstep": 1}
    return replace(history, left=replace(history.left, dead=dead))


PLANTED: dict[str, list[Mutate]] = {
    "P1": [
        lost_in_the_middle,
        lost_at_the_end,
        lost_as_a_whole_session,
        lost_from_its_state,
        never_reached_the_outside,
    ],
    "P2": [
        applied_twice,
        applied_again_at_the_end,
        sent_under_two_ids,
        counted_twice_in_its_state,
    ],
    "P3": [swapped, came_out_late, built_on_something_else],
    "P4": [other_bytes_in_the_west, other_bytes_in_a_repeat, another_key_in_a_repeat],
    "P5": [
        nobody_sent_it,
        never_begun,
        nobody_asked_for_the_run,
        a_session_out_of_nothing,
        other_content,
        missing_in_the_west,
        state_without_output,
        newest_state_without_output,
    ],
    "P6": [waiting_in_a_queue, pending_for_ever],
    "P7": [abandoned_without_faults, sent_twice_without_faults, run_twice_without_faults],
    "P8": [too_many_old_entries, markers_for_numbered_messages, a_ledger_too_many],
    "P9": [
        poison_unnamed_in_the_west,
        poison_named_without_a_reason,
        poison_with_an_effect,
        a_sound_message_named,
        something_rejected,
        dead_lettered,
    ],
}
CASES = [(name, mutate) for name, mutates in PLANTED.items() for mutate in mutates]


def test_a_flawless_history_keeps_every_promise_and_something_was_checked_for_each() -> None:
    results = check_history(flawless())

    assert [f.promise.name for f in results] == NAMES
    assert broken(flawless()) == {}
    assert all(result.checked for result in results)


def test_something_is_planted_for_every_promise() -> None:
    assert list(PLANTED) == NAMES


@pytest.mark.parametrize(
    ("name", "mutate"), CASES, ids=[f"{name}-{mutate.__name__}" for name, mutate in CASES]
)
def test_the_checker_names_the_promise_that_was_broken_and_no_other(
    name: str, mutate: Mutate
) -> None:
    assert list(broken(mutate(flawless()))) == [name]


def test_an_operation_whose_fate_nobody_knows_may_or_may_not_have_had_an_effect() -> None:
    history = flawless()
    sent = tuple(replace(s, safe_at=None) if s.id == "N1-5" else s for s in history.sent)
    unknown = replace(history, sent=sent)

    assert broken(unknown) == {}
    assert broken(rebuilt(unknown, "N1", (0, 1, 3, 4))) == {}


def test_what_a_queue_refused_for_a_while_may_come_out_late_there_and_nowhere_else() -> None:
    late = came_out_late(flawless())

    assert broken(replace(late, refusing=frozenset({"west"}))) == {}
    assert [*broken(replace(late, refusing=frozenset({"east"})))] == ["P3"]


def test_repeats_after_the_baseline_are_no_violation() -> None:
    repeated = again(flawless(), "N1-3", at=BASELINE_UNTIL + 1)
    run = replace(repeated.runs[0], at=BASELINE_UNTIL + 1)

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
