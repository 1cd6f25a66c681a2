"""The rules in docs/guarantees.md decide whatever can occur, and each decision is explained."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from docs.site.decision_table import IMPOSSIBLE, situations
from shared.domain.decision import RULES, Situation, rule_for, situation_of
from shared.domain.journal import (
    ARRIVALS,
    Attempt,
    Cursor,
    Entry,
    Halt,
    MessageIdentity,
    Owner,
    Status,
)
from shared.domain.message import Message, Number
from tests.docs.pages import page

NUMBERS = [Number("g", level, sequence) for level in (0, 1) for sequence in range(4)]
MESSAGES = [Message("m", "s", "t", b"{}", number) for number in (None, *NUMBERS)]


def is_impossible(situation: Situation) -> bool:
    return any(one.includes(situation) for one in IMPOSSIBLE)


def heads() -> Iterator[Entry]:
    """Newest entries of every status, with all cursors, halts and contents that matter."""
    places = [*NUMBERS, Number(ARRIVALS, 0, 3)]
    digests = (MESSAGES[0].digest, "another")
    named = [(MessageIdentity("m", "t", d, place),) for d, place in product(digests, places)]
    halts = [None, *(Halt(5, number) for number in NUMBERS)]
    for status, identities, level, halt, parked in product(
        Status, [(), *named], (0, 1), halts, ({}, {ARRIVALS: 1})
    ):
        entry = Entry(
            session="s",
            position=5,
            status=status,
            identities=identities,
            state=None,
            state_at=None,
            attempt=Attempt("a", Owner("east", "i")),
            cursors={"g": Cursor(level, 2)},
            parked=parked,
            halt=halt,
        )
        yield entry
        if halt is None and status is not Status.WORKING:
            yield replace(entry, is_ended=True)


def test_every_situation_is_decided_or_listed_as_impossible() -> None:
    undecided = []
    for situation in situations():
        try:
            rule_for(situation)
        except ValueError:
            undecided.append(situation)

    assert undecided
    assert all(is_impossible(situation) for situation in undecided)


def test_exactly_the_situations_that_are_not_impossible_occur() -> None:
    occurring = {situation_of(None, message, from_parked=False) for message in MESSAGES}
    for head, message, from_parked in product(heads(), MESSAGES, (False, True)):
        occurring.add(situation_of(head, message, from_parked=from_parked))

    assert occurring == {situation for situation in situations() if not is_impossible(situation)}


def test_every_rule_decides_something() -> None:
    used = {id(rule_for(situation)) for situation in situations() if not is_impossible(situation)}

    assert used == {id(rule) for rule in RULES}


def test_the_page_says_what_follows_from_every_decision() -> None:
    decisions = {rule.decision.__name__ for rule in RULES}

    assert page("docs/guarantees.md").table("decision").names() == decisions
