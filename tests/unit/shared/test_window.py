"""When a message without a number may be taken, and which place it gets."""

from dataclasses import replace

import pytest

from shared.domain.decision import CLOCK_SLACK_SECONDS, explain_expiry, marker_seconds
from shared.domain.errors import InvalidMessage
from shared.domain.journal import ARRIVALS, Attempt, Entry, Halt, Lease, Owner, Status
from shared.domain.message import Message, Number
from shared.domain.next_entry import EntryInput, make_claim, open_entry
from tests.world import message

NOON = 1_780_056_000.0  # 2026-05-29T12:00:00Z
WINDOW = 3600.0 * 24
PLAIN = replace(message(0), number=None, time="2026-05-29T12:00:00+00:00")
ATTEMPT = Attempt("a", Owner("east", "east-1"))


def number_of(head: Entry | None, arriving: Message) -> Number:
    """The number under which an entry on this head would have the message."""
    return open_entry(EntryInput(head, arriving, ATTEMPT)).identities[0].number


@pytest.mark.parametrize(
    ("age", "taken"),
    [
        (-CLOCK_SLACK_SECONDS, True),
        (0, True),
        (WINDOW, True),
        (WINDOW + 1, False),
        (1000 * WINDOW, False),
    ],
)
def test_it_is_taken_within_the_window(age: float, taken: bool) -> None:
    assert (explain_expiry(PLAIN, NOON + age, WINDOW) is None) is taken


def test_one_from_the_future_is_no_message() -> None:
    with pytest.raises(InvalidMessage, match="comes from 3601 s in the future"):
        explain_expiry(PLAIN, NOON - CLOCK_SLACK_SECONDS - 1, WINDOW)


def test_a_numbered_one_is_never_too_old_and_needs_no_time() -> None:
    assert explain_expiry(message(0), NOON + 1000 * WINDOW, WINDOW) is None


@pytest.mark.parametrize(
    "time", ["2026-05-29T12:00:00", "2026-05-29T12:00:00Z", "2026-05-29T14:00:00+02:00"]
)
def test_a_time_without_a_zone_is_utc(time: str) -> None:
    assert explain_expiry(replace(PLAIN, time=time), NOON + WINDOW, WINDOW) is None
    assert explain_expiry(replace(PLAIN, time=time), NOON + WINDOW + 1, WINDOW) is not None


def test_a_marker_outlives_every_copy_that_is_taken() -> None:
    # Sender and worker may each be off by the slack, one ahead and one behind.
    assert marker_seconds(WINDOW) >= WINDOW + 2 * CLOCK_SLACK_SECONDS


def test_the_first_place_is_zero() -> None:
    assert number_of(None, PLAIN) == Number(ARRIVALS, 0, 0)


def test_a_claim_of_an_arrival_keeps_its_place() -> None:
    claim = make_claim(open_entry(EntryInput(None, PLAIN, ATTEMPT)), Lease(30))

    assert claim.identities[0].number == Number(ARRIVALS, 0, 0)
    assert number_of(claim, replace(PLAIN, id="second")) == Number(ARRIVALS, 0, 1)
    assert number_of(replace(claim, parked={ARRIVALS: 2}), PLAIN) == Number(ARRIVALS, 0, 3)


def test_a_claim_of_a_numbered_one_keeps_no_place_of_arrival() -> None:
    claim = make_claim(open_entry(EntryInput(None, message(0), ATTEMPT)), Lease(30))

    assert number_of(claim, PLAIN) == Number(ARRIVALS, 0, 0)


def test_a_fault_of_an_arrival_keeps_its_place() -> None:
    entry = open_entry(EntryInput(None, PLAIN, ATTEMPT))
    halted = replace(entry, status=Status.PARKED, halt=Halt(0, Number(ARRIVALS, 0, 0)))
    other = replace(halted, halt=Halt(0, Number("bank", 0, 0)))

    assert number_of(halted, replace(PLAIN, id="second")) == Number(ARRIVALS, 0, 1)
    assert number_of(other, replace(PLAIN, id="second")) == Number(ARRIVALS, 0, 0)
