"""Mutants of a flawless history: the judge names the promise that was broken, and no other."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from chaos.judge.history import Head, History, Quiet, Report, Run, Seen
from chaos.judge.verdict import PROMISES, judge
from tests.unit.chaos.histories import (
    EFFECTFUL,
    QUIET_UNTIL,
    flawless,
    rebuilt,
    report,
    sent_in,
    without,
)

type Mutate = Callable[[History], History]
NAMES = [promise.name for promise in PROMISES]


def broken(history: History) -> dict[str, int]:
    """Violations by promise, where there are any."""
    return {f.promise.name: f.violations for f in judge(history) if f.violations}


def changed(history: History, name: str, region: str, **fields: object) -> History:
    """What was seen of a message in a region, changed."""
    seen = tuple(
        replace(s, **fields) if (s.id, s.region) == (name, region) else s  # type: ignore[arg-type]
        for s in history.seen
    )
    return replace(history, seen=arrived(seen))


def arrived(seen: Iterable[Seen]) -> tuple[Seen, ...]:
    """In the order of arrival."""
    return tuple(sorted(seen, key=lambda one: (one.region, one.number)))


def again(history: History, name: str, **fields: object) -> History:
    """One more copy of what was seen of a message in the east."""
    (first,) = (s for s in history.seen if (s.id, s.region) == (name, "east"))
    copy = replace(first, **{"number": 20_000, **fields})  # type: ignore[arg-type]
    return replace(history, seen=arrived((*history.seen, copy)))


def lost_in_the_middle(history: History) -> History:
    return rebuilt(history, "N1", (0, 1, 4, 5))


def lost_at_the_end(history: History) -> History:
    return rebuilt(history, "N1", (0, 1, 3, 4))


def lost_as_a_whole_session(history: History) -> History:
    heads = {session: head for session, head in history.heads.items() if session != "N1"}
    seen = tuple(s for s in history.seen if s.session != "N1")
    return replace(history, heads=heads, seen=seen)


def lost_from_its_state(history: History) -> History:
    earlier = rebuilt(history, "N1", (0, 1, 3, 4)).heads
    return replace(history, heads=earlier)


def never_reached_the_outside(history: History) -> History:
    return replace(history, runs=tuple(r for r in history.runs if r.session != "N1"))


def applied_twice(history: History) -> History:
    return rebuilt(history, "N1", (0, 1, 3, 3, 4, 5))


def applied_again_at_the_end(history: History) -> History:
    return rebuilt(history, "N1", (0, 1, 3, 4, 5, 0))


def told_under_two_ids(history: History) -> History:
    late = {"output": "another", "at": QUIET_UNTIL + 1}
    return again(history, "N1-3", **late)


def counted_twice_in_its_state(history: History) -> History:
    return replace(history, heads={**history.heads, "N1": Head(6, "whatever")})


def swapped(history: History) -> History:
    return rebuilt(history, "N1", (0, 3, 1, 4, 5))


def came_out_late(history: History) -> History:
    return changed(history, "N1-1", "west", number=30_000)


def built_on_something_else(history: History) -> History:
    return replace(history, heads={**history.heads, "N1": Head(5, "something else")})


def other_bytes_in_the_west(history: History) -> History:
    return changed(history, "N1-3", "west", fingerprint="other bytes")


def other_bytes_in_a_repeat(history: History) -> History:
    return again(history, "N1-3", fingerprint="other bytes", at=QUIET_UNTIL + 1)


def another_key_in_a_repeat(history: History) -> History:
    run = Run(QUIET_UNTIL + 1, "N1", f"N1-{EFFECTFUL}", "another key")
    return replace(history, runs=(*history.runs, run))


def nobody_sent_it(history: History) -> History:
    return again(history, "N1-5", id="nobody's", output="ghost", place=5, at=QUIET_UNTIL + 1)


def nobody_asked_for_the_run(history: History) -> History:
    ghost = Run(QUIET_UNTIL + 1, "N1", "nobody's", "a key")
    return replace(history, runs=(*history.runs, ghost))


def a_session_out_of_nothing(history: History) -> History:
    return replace(history, heads={**history.heads, "N9": Head(1, "something")})


def never_begun(history: History) -> History:
    (ghost,) = (one for one in sent_in("N9") if one.sequence == 0)
    known = replace(ghost, is_begun=False, safe_at=None)
    (first,) = (s for s in history.seen if (s.id, s.region) == ("N1-0", "east"))
    copy = replace(first, id=known.id, session="N9", output="ghost", number=20_000)
    return replace(history, sent=(*history.sent, known), seen=(*history.seen, copy))


def other_content(history: History) -> History:
    mutant = changed(history, "N1-3", "east", digest="other content")
    return changed(mutant, "N1-3", "west", digest="other content")


def missing_in_the_west(history: History) -> History:
    return without(history, "N1-3", "west")


def state_without_output(history: History) -> History:
    return without(history, "N1-3")


def newest_state_without_output(history: History) -> History:
    return without(history, "N1-5")


def waiting_in_a_queue(history: History) -> History:
    queued = {**history.left.queued, "west/lockstep": 3}
    return replace(history, left=replace(history.left, queued=queued))


def owed_for_ever(history: History) -> History:
    unfinished = {**history.left.unfinished, "owed": ("N1/000000000003",)}
    return replace(history, left=replace(history.left, unfinished=unfinished))


def abandoned_in_fair_weather(history: History) -> History:
    return replace(history, quiet=Quiet(QUIET_UNTIL, {"abandon in east": 1}))


def sent_twice_in_fair_weather(history: History) -> History:
    return again(history, "N1-3")


def run_twice_in_fair_weather(history: History) -> History:
    return replace(history, runs=(*history.runs, history.runs[0]))


def too_many_old_entries(history: History) -> History:
    return replace(history, left=replace(history.left, old_entries={"N1": 201}))


def markers_for_numbered_messages(history: History) -> History:
    kinds = {**history.left.kinds, "marker": 1}
    return replace(history, left=replace(history.left, kinds=kinds))


def a_ledger_too_many(history: History) -> History:
    kinds = {**history.left.kinds, "ledger": 4}
    return replace(history, left=replace(history.left, kinds=kinds))


def poison_unnamed_in_the_west(history: History) -> History:
    reports = tuple(r for r in history.reports if (r.of, r.region) != ("N1-2", "west"))
    return replace(history, reports=reports)


def poison_named_without_a_reason(history: History) -> History:
    reports = tuple(replace(r, reason="") if r.of == "N1-2" else r for r in history.reports)
    return replace(history, reports=reports)


def poison_with_an_effect(history: History) -> History:
    (poison,) = (one for one in history.sent if one.id == "N1-2")
    said = {"id": poison.id, "digest": poison.digest, "sequence": poison.sequence, "place": 5}
    return again(history, "N1-5", output="of poison", **said)


def a_sound_message_named(history: History) -> History:
    (sound,) = (one for one in history.sent if one.id == "N1-3")
    return replace(history, reports=(*history.reports, report(sound, "east")))


def something_rejected(history: History) -> History:
    rejected = Report("east", "r", "f", "N1", None, "no message of ours")
    return replace(history, reports=(*history.reports, rejected))


def dead_lettered(history: History) -> History:
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
        told_under_two_ids,
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
    "P6": [waiting_in_a_queue, owed_for_ever],
    "P7": [abandoned_in_fair_weather, sent_twice_in_fair_weather, run_twice_in_fair_weather],
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
    findings = judge(flawless())

    assert [f.promise.name for f in findings] == NAMES
    assert broken(flawless()) == {}
    assert all(finding.checked for finding in findings)


def test_something_is_planted_for_every_promise() -> None:
    assert list(PLANTED) == NAMES


@pytest.mark.parametrize(
    ("name", "mutate"), CASES, ids=[f"{name}-{mutate.__name__}" for name, mutate in CASES]
)
def test_the_judge_names_the_promise_that_was_broken_and_no_other(
    name: str, mutate: Mutate
) -> None:
    assert list(broken(mutate(flawless()))) == [name]


def test_an_operation_whose_fate_nobody_knows_may_or_may_not_have_had_an_effect() -> None:
    history = flawless()
    sent = tuple(replace(s, safe_at=None) if s.id == "N1-5" else s for s in history.sent)
    unknown = replace(history, sent=sent)

    assert broken(unknown) == {}
    assert broken(rebuilt(unknown, "N1", (0, 1, 3, 4))) == {}


def test_repeats_after_the_quiet_stretch_are_no_violation() -> None:
    repeated = again(flawless(), "N1-3", at=QUIET_UNTIL + 1)
    run = replace(repeated.runs[0], at=QUIET_UNTIL + 1)

    assert broken(replace(repeated, runs=(*repeated.runs, run))) == {}


def test_findings_count_every_violation_and_name_a_few() -> None:
    missing = flawless()
    for name in ("N0-1", "N1-3", "N2-5"):
        missing = without(missing, name, "west")

    (finding,) = (f for f in judge(missing) if f.violations)

    assert finding.violations == 3
    assert finding.examples == tuple(
        f"{name} missing in west" for name in ("N0 message 1", "N1 message 3", "N2 message 5")
    )
    assert "P5 no ghosts" in str(finding)
