"""Numbers and their end, starting numbers, and the options of a producer."""

from typing import Any

import pytest

from shared.domain.errors import (
    InvalidClientState,
    InvalidOptions,
    NumbersExhausted,
)
from shared.domain.message import OWNER_LEVEL_MAX, SEQUENCE_MAX
from shared.domain.producer import Draft, Ledger, ProducerOptions, number_drafts

OPTIONS = ProducerOptions("bank")


def drafts(*names: str) -> list[Draft]:
    return [Draft(name, "account.add", b"{}") for name in names]


def sequences(ledger: Ledger, *names: str, options: ProducerOptions = OPTIONS) -> list[int]:
    numbered = number_drafts(ledger, "acc-7", drafts(*names), options)
    return [m.number.sequence for m in numbered.messages if m.number]


def test_the_last_number_is_given_and_kept_and_then_none_is_left() -> None:
    last = number_drafts(Ledger("bank", next=SEQUENCE_MAX), "acc-7", drafts("a"), OPTIONS)

    assert [m.number.sequence for m in last.fresh if m.number] == [SEQUENCE_MAX]
    assert sequences(last.ledger, "a") == [SEQUENCE_MAX]
    with pytest.raises(NumbersExhausted, match="begin a new group"):
        sequences(last.ledger, "b")
    # One that would cross the end is refused whole.
    with pytest.raises(NumbersExhausted):
        sequences(Ledger("bank", next=SEQUENCE_MAX), "a", "b")


def test_old_and_new_messages_in_one_operation_keep_and_get_their_numbers() -> None:
    first = number_drafts(Ledger("bank"), "acc-7", drafts("a", "b", "c"), OPTIONS)

    mixed = number_drafts(first.ledger, "acc-7", drafts("d", "b", "e"), OPTIONS)

    assert [m.number.sequence for m in mixed.messages if m.number] == [3, 1, 4]
    assert [m.id for m in mixed.fresh] == ["d", "e"]
    assert (mixed.ledger.began, mixed.ledger.next) == (3, 5)


def test_a_starting_number_may_be_the_next_or_where_the_newest_operation_began() -> None:
    ledger = Ledger("bank", next=9, began=6)

    for start in (6, 9):
        assert sequences(ledger, "a", options=ProducerOptions("bank", 0, start)) == [9]
    for start in (0, 5, 7, 8, 10):
        with pytest.raises(InvalidClientState, match="expects 9"):
            sequences(ledger, "a", options=ProducerOptions("bank", 0, start))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        *(((group,), "group id") for group in ("", "g" * 129, "$", "$arrivals", "session:acc-7")),
        *(
            (("bank", n), "owner level")
            for n in (-1, OWNER_LEVEL_MAX + 1, 10**5_000, True, 1.0, "1")
        ),
        *((("bank", 0, start), "starting number") for start in (-1, SEQUENCE_MAX + 1, False)),
    ],
)
def test_an_option_that_is_reserved_or_out_of_its_range_is_refused(
    options: tuple[Any, ...], why: str
) -> None:
    with pytest.raises(InvalidOptions, match=why):
        ProducerOptions(*options)


def test_the_edges_of_the_ranges_are_allowed() -> None:
    widest = ProducerOptions("g" * 128, OWNER_LEVEL_MAX, SEQUENCE_MAX)

    assert (widest.owner_level, widest.starting_sequence_number) == (OWNER_LEVEL_MAX, SEQUENCE_MAX)
