"""Each defect is planted alone in a sound history: it must be named, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from proof.demo.checker import AppliedMessage, Breach, DemoHistory, StoredStatus, check_history
from tests.unit.proof.demo.histories import (
    effect,
    flown,
    held,
    journal,
    message,
    sound_history,
    with_entries,
)

AIRCRAFT = "N14228"


def last_message_never_took_effect(history: DemoHistory) -> DemoHistory:
    return with_entries(history, AIRCRAFT, *journal(history, AIRCRAFT)[:-1])


def message_in_the_middle_never_took_effect(history: DemoHistory) -> DemoHistory:
    kept = (0, 2, 3)
    effects = (effect(message(AIRCRAFT, n), position=at) for at, n in enumerate(kept))
    return with_entries(history, AIRCRAFT, *effects)


def whole_session_is_missing(history: DemoHistory) -> DemoHistory:
    return with_entries(history, AIRCRAFT)


def message_took_effect_twice(history: DemoHistory) -> DemoHistory:
    entries = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *entries, effect(message(AIRCRAFT, 1), position=4))


def one_entry_covers_a_message_twice(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    double = replace(last, covers=last.covers * 2, events=5)
    return with_entries(history, AIRCRAFT, *before, double)


def two_messages_took_effect_in_the_wrong_order(history: DemoHistory) -> DemoHistory:
    order = (0, 2, 1, 3)
    effects = (effect(message(AIRCRAFT, n), position=at) for at, n in enumerate(order))
    return with_entries(history, AIRCRAFT, *effects)


def entry_was_built_on_an_old_state(history: DemoHistory) -> DemoHistory:
    entries = journal(history, AIRCRAFT)
    stale = [replace(entry, events=entry.position) for entry in entries[2:]]
    return with_entries(history, AIRCRAFT, *entries[:2], *stale)


def first_entry_was_built_on_something_unknown(history: DemoHistory) -> DemoHistory:
    entries = [replace(entry, events=entry.position + 8) for entry in journal(history, AIRCRAFT)]
    return with_entries(history, AIRCRAFT, *entries)


def effect_has_no_state(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, events=None))


def effect_has_another_body(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    other = replace(last.covers[0], digest=message(AIRCRAFT, 99).digest)
    return with_entries(history, AIRCRAFT, *before, replace(last, covers=(other,)))


def effect_has_another_number(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    other = replace(last.covers[0], sequence=9)
    return with_entries(history, AIRCRAFT, *before, replace(last, covers=(other,)))


def effect_of_a_message_nobody_sent(history: DemoHistory) -> DemoHistory:
    return with_entries(
        history, AIRCRAFT, *journal(history, AIRCRAFT), effect(message(AIRCRAFT, 4))
    )


def message_faulted(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(
        history, AIRCRAFT, *before, replace(last, status=StoredStatus.FAULTED, events=None)
    )


def message_was_skipped(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, status=StoredStatus.SKIPPED))


def claim_was_never_finished(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, status=StoredStatus.WORKING))


def message_is_parked_for_ever(history: DemoHistory) -> DemoHistory:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, status=StoredStatus.PARKED))


def message_lies_in_a_queue(history: DemoHistory) -> DemoHistory:
    return replace(history, queued={"east": (), "west": (held(AIRCRAFT, 3),)})


def message_is_parked_and_forgotten(history: DemoHistory) -> DemoHistory:
    entries = journal(history, AIRCRAFT)[:-1]
    return replace(with_entries(history, AIRCRAFT, *entries), parked=(held(AIRCRAFT, 3),))


def queue_holds_what_never_took_effect(history: DemoHistory) -> DemoHistory:
    entries = journal(history, AIRCRAFT)[:-1]
    queued = {"east": (held(AIRCRAFT, 3),)}
    return replace(with_entries(history, AIRCRAFT, *entries), queued=queued)


def copy_of_what_never_took_effect_is_pending(history: DemoHistory) -> DemoHistory:
    entries = journal(history, AIRCRAFT)[:-1]
    return replace(
        with_entries(history, AIRCRAFT, *entries),
        pending=("N14228/owed-1",),
        pending_messages=frozenset({held(AIRCRAFT, 3)}),
    )


def copy_is_pending_for_a_region(history: DemoHistory) -> DemoHistory:
    return replace(history, pending=("N14228/owed-1",))


@pytest.mark.parametrize(
    ("plant", "breach"),
    [
        (last_message_never_took_effect, Breach.LOST),
        (message_in_the_middle_never_took_effect, Breach.LOST),
        (message_took_effect_twice, Breach.DUPLICATED),
        (one_entry_covers_a_message_twice, Breach.DUPLICATED),
        (two_messages_took_effect_in_the_wrong_order, Breach.OUT_OF_ORDER),
        (entry_was_built_on_an_old_state, Breach.OVERLAPPING),
        (first_entry_was_built_on_something_unknown, Breach.OVERLAPPING),
        (effect_has_no_state, Breach.OVERLAPPING),
        (effect_has_another_body, Breach.DIFFERENT),
        (effect_has_another_number, Breach.DIFFERENT),
        (effect_of_a_message_nobody_sent, Breach.UNEXPECTED),
        (message_faulted, Breach.FAULTED),
        (message_was_skipped, Breach.FAULTED),
        (claim_was_never_finished, Breach.UNFINISHED),
        (message_is_parked_for_ever, Breach.UNFINISHED),
        (message_is_parked_and_forgotten, Breach.UNFINISHED),
        (message_lies_in_a_queue, Breach.REMAINING),
        (queue_holds_what_never_took_effect, Breach.REMAINING),
        (copy_is_pending_for_a_region, Breach.PENDING),
        (copy_of_what_never_took_effect_is_pending, Breach.PENDING),
    ],
)
def test_a_defect_planted_alone_is_named_once_and_nothing_else_is(
    plant: Callable[[DemoHistory], DemoHistory], breach: Breach
) -> None:
    result = check_history(plant(sound_history()))

    assert [(broken.breach, broken.count) for broken in result.broken] == [(breach, 1)]
    assert len(result.broken[0].examples) == 1


@pytest.mark.parametrize(
    ("plant", "left"),
    [
        (claim_was_never_finished, Breach.UNFINISHED),
        (message_is_parked_for_ever, Breach.UNFINISHED),
        (message_is_parked_and_forgotten, Breach.UNFINISHED),
        (message_lies_in_a_queue, Breach.REMAINING),
        (queue_holds_what_never_took_effect, Breach.REMAINING),
        (copy_is_pending_for_a_region, Breach.PENDING),
        (copy_of_what_never_took_effect_is_pending, Breach.PENDING),
    ],
)
def test_what_a_run_that_was_broken_off_left_undone_is_unfinished_and_breaks_nothing(
    plant: Callable[[DemoHistory], DemoHistory], left: Breach
) -> None:
    result = check_history(replace(plant(sound_history()), is_over=False))

    assert result.broken == ()
    assert [(one.breach, one.count) for one in result.unfinished] == [(left, 1)]


@pytest.mark.parametrize(
    ("plant", "breach"),
    [
        (last_message_never_took_effect, Breach.LOST),
        (message_in_the_middle_never_took_effect, Breach.LOST),
        (message_took_effect_twice, Breach.DUPLICATED),
        (two_messages_took_effect_in_the_wrong_order, Breach.OUT_OF_ORDER),
        (entry_was_built_on_an_old_state, Breach.OVERLAPPING),
        (effect_has_no_state, Breach.OVERLAPPING),
        (effect_has_another_body, Breach.DIFFERENT),
        (effect_of_a_message_nobody_sent, Breach.UNEXPECTED),
        (message_faulted, Breach.FAULTED),
    ],
)
def test_a_run_that_was_broken_off_breaks_a_promise_all_the_same(
    plant: Callable[[DemoHistory], DemoHistory], breach: Breach
) -> None:
    undone = replace(plant(sound_history()), is_over=False, pending=("N24211/owed-1",))

    result = check_history(undone)

    assert [(broken.breach, broken.count) for broken in result.broken] == [(breach, 1)]
    assert [left.breach for left in result.unfinished] == [Breach.PENDING]


def test_what_a_feed_has_not_come_to_is_not_sent_and_what_it_went_past_is_lost() -> None:
    whole = sound_history()
    first, _, third, _ = journal(whole, AIRCRAFT)
    history = with_entries(whole, AIRCRAFT, first, replace(third, position=1, events=2))

    result = check_history(replace(history, is_over=False, is_fed=False))

    assert [(one.breach, one.examples) for one in result.broken] == [
        (Breach.LOST, ("N14228 message 1",))
    ]
    assert [(one.breach, one.examples) for one in result.unfinished] == [
        (Breach.UNSENT, ("N14228 message 3",))
    ]


def test_a_sound_history_breaks_nothing_and_every_promise_is_reported() -> None:
    result = check_history(sound_history())

    assert result.broken == ()
    assert [broken.breach for broken in result.results] == list(Breach)
    assert (result.sent, result.effects) == (7, 7)


def test_every_message_of_a_session_without_a_journal_is_lost() -> None:
    result = check_history(whole_session_is_missing(sound_history()))

    assert [(broken.breach, broken.count) for broken in result.broken] == [(Breach.LOST, 4)]


def test_nothing_sent_and_nothing_done_is_sound_but_reports_no_effects() -> None:
    result = check_history(DemoHistory(sent=(), entries=()))

    assert (result.sent, result.effects, result.broken) == (0, 0, ())


def test_an_empty_journal_loses_everything() -> None:
    result = check_history(DemoHistory(sent=tuple(flown()), entries=()))

    assert [(broken.breach, broken.count) for broken in result.broken] == [(Breach.LOST, 7)]


def test_a_parked_message_that_was_drained_later_is_no_defect() -> None:
    parked = replace(
        effect(message(AIRCRAFT, 2), position=2), status=StoredStatus.PARKED, events=None
    )
    history = with_entries(
        sound_history(),
        AIRCRAFT,
        effect(message(AIRCRAFT, 0)),
        effect(message(AIRCRAFT, 1)),
        parked,
        effect(message(AIRCRAFT, 2), position=3, events=3),
        effect(message(AIRCRAFT, 3), position=4, events=4),
    )

    assert check_history(history).broken == ()


def test_one_entry_may_cover_a_batch_of_messages_in_order() -> None:
    batch = [message(AIRCRAFT, number) for number in range(4)]
    covers = tuple(AppliedMessage(sent.id, sent.sequence, sent.digest) for sent in batch)
    entry = replace(effect(batch[0]), covers=covers, events=4)

    assert check_history(with_entries(sound_history(), AIRCRAFT, entry)).broken == ()


def test_compacted_entries_leave_nothing_to_compare_but_their_effects_are_missed() -> None:
    history = sound_history()
    kept = journal(history, AIRCRAFT)[2:]

    result = check_history(with_entries(history, AIRCRAFT, *kept))

    assert [(broken.breach, broken.count) for broken in result.broken] == [(Breach.LOST, 2)]


def test_a_message_that_took_effect_in_the_session_of_another_is_lost_and_unexpected() -> None:
    history = sound_history()
    stray = replace(effect(message(AIRCRAFT, 3)), session="N24211", position=3, events=4)
    entries = [*journal(history, AIRCRAFT)[:3], *journal(history, "N24211"), stray]

    result = check_history(replace(history, entries=tuple(entries)))

    assert [broken.breach for broken in result.broken] == [Breach.LOST, Breach.UNEXPECTED]


def test_only_a_few_examples_are_named_however_many_messages_are_lost() -> None:
    result = check_history(DemoHistory(sent=tuple(message("N1", n) for n in range(50)), entries=()))

    (broken,) = result.broken
    assert broken.count == 50
    assert broken.examples == tuple(f"N1 message {number}" for number in range(5))
