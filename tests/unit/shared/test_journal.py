"""The one decision, the window of what has no number, and the entry that follows."""

from dataclasses import replace
from typing import Any

import pytest

from shared.domain import next_entry
from shared.domain.decision import (
    CLOCK_SLACK_SECONDS,
    Decision,
    Duplicate,
    Ended,
    Fenced,
    Gap,
    Halted,
    Proceed,
    decide,
    explain_expiry,
    marker_seconds,
)
from shared.domain.errors import InvalidMessage
from shared.domain.handler import HandlerResult
from shared.domain.journal import (
    ARRIVALS,
    Attempt,
    Cursor,
    Entry,
    Halt,
    Lease,
    Owner,
    Resolution,
    Status,
)
from shared.domain.message import Message, Number
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX
from tests.world import message

ATTEMPT = Attempt("east-1/2", Owner("east", "east-1"))
NOON = 1_780_056_000.0  # 2026-05-29T12:00:00Z
WINDOW = 3600.0 * 24
PLAIN = replace(message(0), number=None, time="2026-05-29T12:00:00+00:00")


def head(level: int = 2, following: int = 5) -> Entry:
    return Entry(
        session="acc-7",
        position=8,
        status=Status.COMPLETED,
        identities=(),
        state={"amounts": [1]},
        state_at=None,
        attempt=ATTEMPT,
        cursors={"bank": Cursor(level, following), "other": Cursor(0, 1)},
    )


def opened(head: Entry | None, arriving: Message, **made_from: Any) -> Entry:
    """The entry that a message would begin on this head."""
    return next_entry.open_entry(EntryInput(head, arriving, ATTEMPT, **made_from))


def place_of(head: Entry | None, **made_from: Any) -> int:
    """Which place of arrival a message without a number would have on this head."""
    number = opened(head, PLAIN, **made_from).identities[0].number
    assert number == Number(ARRIVALS, 0, number.sequence)
    return number.sequence


ENDED = replace(head(), is_ended=True)
HALTED = replace(head(), halt=Halt(at=8, number=Number("bank", 2, 5)))


@pytest.mark.parametrize(
    ("newest", "arriving", "decision"),
    [
        (head(), message(4, level=2), Duplicate()),
        (head(), message(5, level=2), Proceed()),
        (head(), message(6, level=2), Gap(expected=5)),
        # A fenced producer's old message is done all the same.
        (head(), message(4, level=1), Duplicate()),
        (head(), message(5, level=1), Fenced(level=2)),
        (head(), message(6, level=1), Fenced(level=2)),
        (head(), message(4, level=3), Duplicate()),
        (head(), message(5, level=3), Proceed()),
        (head(), message(6, level=3), Gap(expected=5)),
        (head(), message(0, group="newcomer"), Proceed()),
        (None, message(0), Proceed()),
        (None, message(1), Gap(expected=0)),
        # A halted session knows its fault and makes everything else wait.
        (HALTED, message(4, level=2), Duplicate()),
        (HALTED, message(5, level=2), Duplicate()),
        (HALTED, message(6, level=2), Halted(at=8)),
        (HALTED, message(1, group="other"), Halted(at=8)),
        # An ended one takes nothing new, knows what it had, and waits for what is missing.
        (ENDED, message(4, level=2), Duplicate()),
        (ENDED, message(5, level=2), Ended()),
        (ENDED, message(5, level=1), Fenced(level=2)),
        (ENDED, message(6, level=2), Gap(expected=5)),
        (ENDED, message(0, group="newcomer"), Ended()),
        (ENDED, PLAIN, Ended()),
        (head(), PLAIN, Proceed()),
        (None, PLAIN, Proceed()),
        (replace(head(), parked={ARRIVALS: 2}), PLAIN, Gap(expected=0)),
    ],
)
def test_the_decision_follows_from_the_newest_entry_and_the_message(
    newest: Entry | None, arriving: Message, decision: Decision
) -> None:
    assert decide(newest, arriving) == decision


def test_messages_without_a_number_take_the_places_of_their_arrival() -> None:
    waiting = replace(head(), parked={ARRIVALS: 2})
    stuck = replace(waiting, halt=Halt(8, Number(ARRIVALS, 0, 0)))
    elsewhere = replace(waiting, halt=Halt(8, Number("bank", 0, 0)))
    retried = Resolution("retry", "Ada", "again")

    assert place_of(None) == place_of(head()) == 0
    assert (place_of(waiting), place_of(waiting, from_parked=True)) == (2, 0)
    assert (place_of(stuck), place_of(stuck, resolution=retried)) == (3, 0)
    assert place_of(elsewhere) == 2


def test_a_claim_keeps_the_place_of_an_arrival_and_of_nothing_else() -> None:
    arrival = next_entry.make_claim(opened(None, PLAIN), Lease(30))
    numbered = next_entry.make_claim(opened(None, message(0)), Lease(30))

    assert arrival.identities[0].number == Number(ARRIVALS, 0, 0)
    assert place_of(arrival) == 1
    assert place_of(replace(arrival, parked={ARRIVALS: 2})) == 3
    assert place_of(numbered) == 0


@pytest.mark.parametrize(
    ("age", "is_taken"),
    [
        (-CLOCK_SLACK_SECONDS, True),
        (0, True),
        (WINDOW, True),
        (WINDOW + 1, False),
        (1000 * WINDOW, False),
    ],
)
@pytest.mark.parametrize(
    "time", ["2026-05-29T12:00:00", "2026-05-29T12:00:00Z", "2026-05-29T14:00:00+02:00"]
)
def test_what_has_no_number_is_taken_within_the_window(
    time: str, age: float, is_taken: bool
) -> None:
    assert (explain_expiry(replace(PLAIN, time=time), NOON + age, WINDOW) is None) is is_taken
    assert explain_expiry(message(0), NOON + age, WINDOW) is None


def test_one_from_the_future_is_no_message() -> None:
    with pytest.raises(InvalidMessage, match="comes from 3601 s in the future"):
        explain_expiry(PLAIN, NOON - CLOCK_SLACK_SECONDS - 1, WINDOW)


def test_a_marker_outlives_every_copy_that_is_taken() -> None:
    # Sender and worker may each be off by the slack, one ahead and one behind.
    assert marker_seconds(WINDOW) >= WINDOW + 2 * CLOCK_SLACK_SECONDS


def test_the_entry_moves_only_the_cursor_of_its_message() -> None:
    result = HandlerResult({"amounts": [1, 6]}, (), {}, {})
    entry = next_entry.complete(opened(head(), message(5, level=3)), result, NO_OUTBOX)

    assert entry.position == 9
    assert entry.cursors == {"bank": Cursor(3, 6), "other": Cursor(0, 1)}
    assert entry.identities[0].number == Number("bank", 3, 5)
    assert entry.identities[0].digest == message(5).digest


def test_a_refusal_changes_neither_state_nor_cursors() -> None:
    entry = next_entry.refuse(opened(head(), message(5, level=1)), "fenced")

    assert (entry.position, entry.status, entry.reason) == (9, Status.SKIPPED, "fenced")
    assert (entry.state, entry.state_at, entry.cursors) == (None, 8, head().cursors)


def test_parking_points_to_the_state_and_counts() -> None:
    first = next_entry.park(EntryInput(head(), message(7, level=2), ATTEMPT))
    second = next_entry.park(EntryInput(first, message(8, level=2), ATTEMPT))

    assert (first.state, first.state_at, first.cursors) == (None, 8, head().cursors)
    assert (second.state_at, second.parked) == (8, {"bank": 2})


def test_a_fault_that_halts_keeps_the_cursor_and_one_that_skips_moves_it() -> None:
    begun = opened(head(), message(5, level=2))

    halting = next_entry.fail(begun, reason="r", outbox=NO_OUTBOX, halts=True)
    skipping = next_entry.fail(begun, reason="r", outbox=NO_OUTBOX, halts=False)

    assert (halting.cursors["bank"].next, halting.halt) == (5, Halt(9, Number("bank", 2, 5)))
    assert (skipping.cursors["bank"].next, skipping.halt) == (6, None)
    assert halting.message == skipping.message == message(5, level=2)


def test_a_resolution_lifts_the_halt() -> None:
    halted = replace(head(), halt=Halt(at=8, number=Number("bank", 2, 5)))
    decided = Resolution("skip", "Ada", "sent by mistake")

    begun = opened(halted, message(5, level=2), resolution=decided)
    entry = next_entry.skip(begun, "sent by mistake")

    assert (entry.halt, entry.resolution, entry.cursors["bank"].next) == (None, decided, 6)
