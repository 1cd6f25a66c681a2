"""The one decision, and the entry that follows it."""

from dataclasses import replace

import pytest

from shared.domain import next_entry
from shared.domain.decision import Decision, Duplicate, Fenced, Gap, Halted, Proceed, decide
from shared.domain.handler import HandlerResult
from shared.domain.journal import ARRIVALS, Attempt, Cursor, Entry, Halt, Owner, Resolution, Status
from shared.domain.message import Message, Number
from shared.domain.next_entry import EntryInput
from shared.domain.outbox import NO_OUTBOX
from tests.world import message

OWNER = Owner("east", "east-1")
ATTEMPT = Attempt("east-1/2", OWNER)


def head(level: int = 2, following: int = 5) -> Entry:
    return Entry(
        session="acc-7",
        position=8,
        status=Status.COMPLETED,
        identities=(),
        state={"amounts": [1]},
        state_at=None,
        attempt=Attempt("east-1/1", OWNER),
        cursors={"bank": Cursor(level, following), "other": Cursor(0, 1)},
    )


RETRIED = Resolution("retry", "Ada", "again")


def number_of(
    head: Entry, arriving: Message, *, from_parked: bool = False, resolving: bool = False
) -> Number:
    """The number under which an entry on this head would have the message."""
    resolution = RETRIED if resolving else None
    made_from = EntryInput(head, arriving, ATTEMPT, from_parked=from_parked, resolution=resolution)
    return next_entry.open_entry(made_from).identities[0].number


@pytest.mark.parametrize(
    ("level", "sequence", "decision"),
    [
        (2, 4, Duplicate()),
        (2, 5, Proceed()),
        (2, 6, Gap(expected=5)),
        (1, 4, Duplicate()),  # a fenced producer's old message is done all the same
        (1, 5, Fenced(level=2)),
        (1, 6, Fenced(level=2)),
        (3, 4, Duplicate()),
        (3, 5, Proceed()),
        (3, 6, Gap(expected=5)),
    ],
)
def test_decision_by_owner_level_and_sequence(
    level: int, sequence: int, decision: Decision
) -> None:
    assert decide(head(), message(sequence, level=level)) == decision


def test_a_new_session_begins_at_zero() -> None:
    assert decide(None, message(0)) == Proceed()
    assert decide(None, message(1)) == Gap(expected=0)


def test_producer_groups_do_not_know_each_other() -> None:
    assert decide(head(), message(0, group="newcomer")) == Proceed()


def test_messages_without_a_number_take_the_places_of_their_arrival() -> None:
    plain = Message("m", "acc-7", "account.add", b"{}")
    waiting = replace(head(), parked={ARRIVALS: 2})
    stuck = replace(waiting, halt=Halt(8, Number(ARRIVALS, 0, 0)))

    assert decide(None, plain) == decide(head(), plain) == Proceed()
    assert decide(waiting, plain) == Gap(expected=0)
    assert number_of(head(), plain) == Number(ARRIVALS, 0, 0)
    assert number_of(waiting, plain) == Number(ARRIVALS, 0, 2)
    assert number_of(waiting, plain, from_parked=True) == Number(ARRIVALS, 0, 0)
    assert number_of(stuck, plain) == Number(ARRIVALS, 0, 3)
    assert number_of(stuck, plain, resolving=True) == Number(ARRIVALS, 0, 0)


def test_a_halted_session_knows_its_fault_and_makes_everything_else_wait() -> None:
    halted = replace(head(), halt=Halt(at=8, number=Number("bank", 2, 5)))

    assert decide(halted, message(4, level=2)) == Duplicate()
    assert decide(halted, message(5, level=2)) == Duplicate()
    assert decide(halted, message(6, level=2)) == Halted(at=8)
    assert decide(halted, message(1, group="other")) == Halted(at=8)


def test_the_entry_moves_only_the_cursor_of_its_message() -> None:
    opened = next_entry.open_entry(EntryInput(head(), message(5, level=3), ATTEMPT))
    entry = next_entry.complete(opened, HandlerResult({"amounts": [1, 6]}, (), {}, {}), NO_OUTBOX)

    assert entry.position == 9
    assert entry.cursors == {"bank": Cursor(3, 6), "other": Cursor(0, 1)}
    assert entry.identities[0].number == Number("bank", 3, 5)
    assert entry.identities[0].digest == message(5).digest


def test_a_refusal_changes_neither_state_nor_cursors() -> None:
    entry = next_entry.refuse(
        next_entry.open_entry(EntryInput(head(), message(5, level=1), ATTEMPT)), "fenced"
    )

    assert (entry.position, entry.status, entry.reason) == (9, Status.SKIPPED, "fenced")
    assert (entry.state, entry.state_at, entry.cursors) == (None, 8, head().cursors)


def test_parking_points_to_the_state_and_counts() -> None:
    first = next_entry.park(EntryInput(head(), message(7, level=2), ATTEMPT))
    second = next_entry.park(EntryInput(first, message(8, level=2), ATTEMPT))

    assert (first.state, first.state_at, first.cursors) == (None, 8, head().cursors)
    assert (second.state_at, second.parked) == (8, {"bank": 2})


def test_a_fault_that_halts_keeps_the_cursor_and_one_that_skips_moves_it() -> None:
    made_from = next_entry.open_entry(EntryInput(head(), message(5, level=2), ATTEMPT))

    halting = next_entry.fail(made_from, reason="r", outbox=NO_OUTBOX, halts=True)
    skipping = next_entry.fail(made_from, reason="r", outbox=NO_OUTBOX, halts=False)

    assert (halting.cursors["bank"].next, halting.halt) == (5, Halt(9, Number("bank", 2, 5)))
    assert (skipping.cursors["bank"].next, skipping.halt) == (6, None)
    assert halting.message == skipping.message == message(5, level=2)


def test_a_resolution_lifts_the_halt() -> None:
    halted = replace(head(), halt=Halt(at=8, number=Number("bank", 2, 5)))
    decided = Resolution("skip", "Ada", "sent by mistake")

    entry = next_entry.skip(
        next_entry.open_entry(EntryInput(halted, message(5, level=2), ATTEMPT, resolution=decided)),
        "sent by mistake",
    )

    assert (entry.halt, entry.resolution, entry.cursors["bank"].next) == (None, decided, 6)
