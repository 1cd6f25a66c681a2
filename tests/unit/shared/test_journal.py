"""The one decision, and the entry that follows it."""

import pytest

from shared.domain.errors import InvalidMessage
from shared.domain.journal import (
    Cursor,
    Decision,
    Duplicate,
    Entry,
    Fenced,
    Gap,
    Owner,
    Proceed,
    Status,
    completed,
    decide,
    skipped,
)
from shared.domain.message import Message, Number
from shared.domain.outbox import NOTHING_OWED
from tests.world import message

OWNER = Owner("east", "east-1")


def head(level: int = 2, following: int = 5) -> Entry:
    return Entry(
        session="acc-7",
        position=8,
        status=Status.COMPLETED,
        covers=(),
        state={"amounts": [1]},
        attempt="east-1/1",
        owner=OWNER,
        cursors={"bank": Cursor(level, following), "other": Cursor(0, 1)},
    )


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


def test_a_message_without_a_number_is_refused_by_name() -> None:
    with pytest.raises(InvalidMessage, match="no producer number"):
        decide(None, Message("m", "acc-7", "account.add", b"{}"))


def test_the_entry_moves_only_the_cursor_of_its_message() -> None:
    entry = completed(
        head(),
        message(5, level=3),
        state={"amounts": [1, 6]},
        outbox=NOTHING_OWED,
        produced={},
        attempt="east-1/2",
        owner=OWNER,
    )

    assert entry.position == 9
    assert entry.cursors == {"bank": Cursor(3, 6), "other": Cursor(0, 1)}
    assert entry.covers[0].number == Number("bank", 3, 5)
    assert entry.covers[0].digest == message(5).digest


def test_a_refusal_changes_neither_state_nor_cursors() -> None:
    entry = skipped(head(), message(5, level=1), reason="fenced", attempt="a", owner=OWNER)

    assert (entry.position, entry.status, entry.reason) == (9, Status.SKIPPED, "fenced")
    assert (entry.state, entry.cursors) == (head().state, head().cursors)
