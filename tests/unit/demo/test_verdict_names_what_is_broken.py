"""Each defect is planted alone in a sound history: it must be named, and nothing else."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from demo.history import Cover, History, Status
from demo.verdict import Breach, judge
from tests.unit.demo.histories import (
    effect,
    flown,
    journal,
    message,
    sound_history,
    with_entries,
)

AIRCRAFT = "N14228"


def last_message_never_took_effect(history: History) -> History:
    return with_entries(history, AIRCRAFT, *journal(history, AIRCRAFT)[:-1])


def message_in_the_middle_never_took_effect(history: History) -> History:
    kept = (0, 2, 3)
    effects = (effect(message(AIRCRAFT, n), position=at) for at, n in enumerate(kept))
    return with_entries(history, AIRCRAFT, *effects)


def whole_session_is_missing(history: History) -> History:
    return with_entries(history, AIRCRAFT)


def message_took_effect_twice(history: History) -> History:
    entries = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *entries, effect(message(AIRCRAFT, 1), position=4))


def one_entry_covers_a_message_twice(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    double = replace(last, covers=last.covers * 2, events=5)
    return with_entries(history, AIRCRAFT, *before, double)


def two_messages_took_effect_in_the_wrong_order(history: History) -> History:
    order = (0, 2, 1, 3)
    effects = (effect(message(AIRCRAFT, n), position=at) for at, n in enumerate(order))
    return with_entries(history, AIRCRAFT, *effects)


def entry_was_built_on_an_old_state(history: History) -> History:
    entries = journal(history, AIRCRAFT)
    stale = [replace(entry, events=entry.position) for entry in entries[2:]]
    return with_entries(history, AIRCRAFT, *entries[:2], *stale)


def first_entry_was_built_on_something_unknown(history: History) -> History:
    entries = [replace(entry, events=entry.position + 8) for entry in journal(history, AIRCRAFT)]
    return with_entries(history, AIRCRAFT, *entries)


def effect_has_no_state(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, events=None))


def effect_has_another_body(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    other = replace(last.covers[0], digest=message(AIRCRAFT, 99).digest)
    return with_entries(history, AIRCRAFT, *before, replace(last, covers=(other,)))


def effect_has_another_number(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    other = replace(last.covers[0], sequence=9)
    return with_entries(history, AIRCRAFT, *before, replace(last, covers=(other,)))


def effect_of_a_message_nobody_sent(history: History) -> History:
    return with_entries(
        history, AIRCRAFT, *journal(history, AIRCRAFT), effect(message(AIRCRAFT, 4))
    )


def message_faulted(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(
        history, AIRCRAFT, *before, replace(last, status=Status.FAULTED, events=None)
    )


def message_was_skipped(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, status=Status.SKIPPED))


def claim_was_never_finished(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, status=Status.WORKING))


def message_is_parked_for_ever(history: History) -> History:
    *before, last = journal(history, AIRCRAFT)
    return with_entries(history, AIRCRAFT, *before, replace(last, status=Status.PARKED))


def message_lies_in_a_queue(history: History) -> History:
    return replace(history, left={"east": 0, "west": 1})


def copy_is_owed_to_a_region(history: History) -> History:
    return replace(history, owed=("N14228/owed-1",))


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
        (message_lies_in_a_queue, Breach.LEFT),
        (copy_is_owed_to_a_region, Breach.OWED),
    ],
)
def test_a_defect_planted_alone_is_named_once_and_nothing_else_is(
    plant: Callable[[History], History], breach: Breach
) -> None:
    verdict = judge(plant(sound_history()))

    assert [(finding.breach, finding.count) for finding in verdict.broken] == [(breach, 1)]
    assert len(verdict.broken[0].examples) == 1


def test_a_sound_history_breaks_nothing_and_every_promise_is_reported() -> None:
    verdict = judge(sound_history())

    assert verdict.broken == ()
    assert [finding.breach for finding in verdict.findings] == list(Breach)
    assert (verdict.sent, verdict.effects) == (7, 7)


def test_every_message_of_a_session_without_a_journal_is_lost() -> None:
    verdict = judge(whole_session_is_missing(sound_history()))

    assert [(finding.breach, finding.count) for finding in verdict.broken] == [(Breach.LOST, 4)]


def test_nothing_sent_and_nothing_done_is_sound_but_reports_no_effects() -> None:
    verdict = judge(History(sent=(), entries=()))

    assert (verdict.sent, verdict.effects, verdict.broken) == (0, 0, ())


def test_an_empty_journal_loses_everything() -> None:
    verdict = judge(History(sent=tuple(flown()), entries=()))

    assert [(finding.breach, finding.count) for finding in verdict.broken] == [(Breach.LOST, 7)]


def test_a_parked_message_that_was_drained_later_is_no_defect() -> None:
    parked = replace(effect(message(AIRCRAFT, 2), position=2), status=Status.PARKED, events=None)
    history = with_entries(
        sound_history(),
        AIRCRAFT,
        effect(message(AIRCRAFT, 0)),
        effect(message(AIRCRAFT, 1)),
        parked,
        effect(message(AIRCRAFT, 2), position=3, events=3),
        effect(message(AIRCRAFT, 3), position=4, events=4),
    )

    assert judge(history).broken == ()


def test_one_entry_may_cover_a_batch_of_messages_in_order() -> None:
    batch = [message(AIRCRAFT, number) for number in range(4)]
    covers = tuple(Cover(sent.id, sent.sequence, sent.digest) for sent in batch)
    entry = replace(effect(batch[0]), covers=covers, events=4)

    assert judge(with_entries(sound_history(), AIRCRAFT, entry)).broken == ()


def test_compacted_entries_leave_nothing_to_compare_but_their_effects_are_missed() -> None:
    history = sound_history()
    kept = journal(history, AIRCRAFT)[2:]

    verdict = judge(with_entries(history, AIRCRAFT, *kept))

    assert [(finding.breach, finding.count) for finding in verdict.broken] == [(Breach.LOST, 2)]


def test_a_message_that_took_effect_in_the_session_of_another_is_lost_and_unexpected() -> None:
    history = sound_history()
    stray = replace(effect(message(AIRCRAFT, 3)), session="N24211", position=3, events=4)
    entries = [*journal(history, AIRCRAFT)[:3], *journal(history, "N24211"), stray]

    verdict = judge(replace(history, entries=tuple(entries)))

    assert [finding.breach for finding in verdict.broken] == [Breach.LOST, Breach.UNEXPECTED]


def test_only_a_few_examples_are_named_however_many_messages_are_lost() -> None:
    verdict = judge(History(sent=tuple(message("N1", n) for n in range(50)), entries=()))

    (finding,) = verdict.broken
    assert finding.count == 50
    assert finding.examples == tuple(f"N1 message {number}" for number in range(5))
