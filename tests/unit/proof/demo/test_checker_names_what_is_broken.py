"""Each defect is planted alone in a sound history: it must be named, and nothing else."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from proof.demo.checker import (
    LEFT,
    AppliedMessage,
    Breach,
    DemoHistory,
    StoredEntry,
    StoredStatus,
    check_history,
)
from tests.unit.proof.demo.histories import (
    effect,
    held,
    journal,
    message,
    sound_history,
    with_entries,
)

AIRCRAFT = "N14228"
SOUND = sound_history()
WHOLE = journal(SOUND, AIRCRAFT)
*BEFORE, LAST = WHOLE


def having(*entries: StoredEntry, of: DemoHistory = SOUND) -> DemoHistory:
    return with_entries(of, AIRCRAFT, *entries)


def ending(**changes: object) -> DemoHistory:
    return having(*BEFORE, replace(LAST, **changes))  # type: ignore[arg-type]


def applying(*sequences: int) -> DemoHistory:
    """The history with these effects of the aircraft, in this order."""
    entries = (effect(message(AIRCRAFT, n), position=at) for at, n in enumerate(sequences))
    return having(*entries)


def counting(events: Callable[[StoredEntry], int], since: int) -> DemoHistory:
    """The history with other states from an entry on."""
    return having(*WHOLE[:since], *(replace(e, events=events(e)) for e in WHOLE[since:]))


DEFECTS: Sequence[tuple[str, Breach, DemoHistory]] = [
    ("the last message never took effect", Breach.LOST, having(*BEFORE)),
    ("a message in the middle never took effect", Breach.LOST, applying(0, 2, 3)),
    (
        "a message took effect twice",
        Breach.DUPLICATED,
        having(*WHOLE, effect(message(AIRCRAFT, 1), position=4)),
    ),
    (
        "one entry covers a message twice",
        Breach.DUPLICATED,
        ending(covers=LAST.covers * 2, events=5),
    ),
    ("two took effect in the wrong order", Breach.OUT_OF_ORDER, applying(0, 2, 1, 3)),
    (
        "an entry was built on an old state",
        Breach.OVERLAPPING,
        counting(lambda entry: entry.position, since=2),
    ),
    (
        "the first entry was built on something unknown",
        Breach.OVERLAPPING,
        counting(lambda entry: entry.position + 8, since=0),
    ),
    ("an effect has no state", Breach.OVERLAPPING, ending(events=None)),
    (
        "an effect has another body",
        Breach.DIFFERENT,
        ending(covers=(replace(LAST.covers[0], digest=message(AIRCRAFT, 99).digest),)),
    ),
    (
        "an effect has another number",
        Breach.DIFFERENT,
        ending(covers=(replace(LAST.covers[0], sequence=9),)),
    ),
    (
        "an effect of a message that nobody sent",
        Breach.UNEXPECTED,
        having(*WHOLE, effect(message(AIRCRAFT, 4))),
    ),
    ("a message faulted", Breach.FAULTED, ending(status=StoredStatus.FAULTED, events=None)),
    ("a message was skipped", Breach.FAULTED, ending(status=StoredStatus.SKIPPED)),
    ("a claim was never finished", Breach.UNFINISHED, ending(status=StoredStatus.WORKING)),
    ("a message is parked for ever", Breach.UNFINISHED, ending(status=StoredStatus.PARKED)),
    (
        "a message is parked and forgotten",
        Breach.UNFINISHED,
        replace(having(*BEFORE), parked=(held(AIRCRAFT, 3),)),
    ),
    (
        "a message lies in a queue",
        Breach.REMAINING,
        replace(SOUND, queued={"east": (), "west": (held(AIRCRAFT, 3),)}),
    ),
    (
        "a queue holds what never took effect",
        Breach.REMAINING,
        replace(having(*BEFORE), queued={"east": (held(AIRCRAFT, 3),)}),
    ),
    (
        "a copy is pending for a region",
        Breach.PENDING,
        replace(SOUND, pending=("N14228/owed-1",)),
    ),
    (
        "a copy of what never took effect is pending",
        Breach.PENDING,
        replace(
            having(*BEFORE),
            pending=("N14228/owed-1",),
            pending_messages=frozenset({held(AIRCRAFT, 3)}),
        ),
    ),
]


def broken(history: DemoHistory) -> list[tuple[Breach, int]]:
    return [(one.breach, one.count) for one in check_history(history).broken]


@pytest.mark.parametrize(("what", "breach", "history"), DEFECTS, ids=[one[0] for one in DEFECTS])
def test_a_defect_planted_alone_is_named_once_and_nothing_else_is(
    what: str, breach: Breach, history: DemoHistory
) -> None:
    result = check_history(history)
    broken_off = check_history(replace(history, is_over=False))

    assert broken(history) == [(breach, 1)], what
    assert len(result.broken[0].examples) == 1
    # Where the run was broken off, what is left undone is unfinished and breaks nothing.
    found, none = broken_off.unfinished, broken_off.broken
    if breach not in LEFT:
        found, none = none, found
    assert [(one.breach, one.count) for one in found] == [(breach, 1)]
    assert none == ()


def test_what_a_feed_has_not_come_to_is_not_sent_and_what_it_went_past_is_lost() -> None:
    first, _, third, _ = WHOLE
    history = having(first, replace(third, position=1, events=2))

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


def test_a_parked_message_that_was_drained_later_is_no_defect() -> None:
    parked = replace(WHOLE[2], status=StoredStatus.PARKED, events=None)
    later = (effect(message(AIRCRAFT, n), position=n + 1, events=n + 1) for n in (2, 3))

    assert broken(having(*WHOLE[:2], parked, *later)) == []


def test_one_entry_may_cover_a_batch_of_messages_in_order() -> None:
    batch = [message(AIRCRAFT, number) for number in range(4)]
    covers = tuple(AppliedMessage(sent.id, sent.sequence, sent.digest) for sent in batch)

    assert broken(having(replace(effect(batch[0]), covers=covers, events=4))) == []


def test_compacted_entries_leave_nothing_to_compare_but_their_effects_are_missed() -> None:
    assert broken(having(*WHOLE[2:])) == [(Breach.LOST, 2)]


def test_a_message_that_took_effect_in_the_session_of_another_is_lost_and_unexpected() -> None:
    stray = replace(LAST, session="N24211", position=3, events=4)
    entries = (*BEFORE, *journal(SOUND, "N24211"), stray)

    assert broken(replace(SOUND, entries=entries)) == [(Breach.LOST, 1), (Breach.UNEXPECTED, 1)]
