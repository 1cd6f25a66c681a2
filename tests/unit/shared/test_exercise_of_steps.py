"""`exercise` takes over between any two steps, and says which step acts twice."""

import pytest

from shared.testkit import Found, exercise, given
from tests.provider import KINDS, RECEIPTS, STEPS, Provider, purchases

MESSAGES = [given("shop", "buy", {"item": "book"})]


@pytest.mark.parametrize("policy", ["ask", "halt"])
def test_each_step_is_done_once_where_its_policy_says_so(policy: str) -> None:
    report = exercise(purchases(Provider(knows_keys=False), policy, attempts=9), MESSAGES)

    assert report.state("shop")["receipts"] == RECEIPTS
    assert report.repeated == frozenset()


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_may_be_repeated_are_named(kind: str) -> None:
    messages = [given("shop", kind, {"item": "book"})]

    report = exercise(purchases(Provider(), "repeat", attempts=9), messages)

    assert report.state("shop")["receipts"] == RECEIPTS
    assert report.repeated == frozenset(STEPS)


def test_a_look_up_that_does_not_find_what_was_done_is_found() -> None:
    blind = Provider(is_blind=True)

    with pytest.raises(Found, match="was done twice, because its look-up raised NotDone"):
        exercise(purchases(blind, "ask", attempts=9), MESSAGES)
