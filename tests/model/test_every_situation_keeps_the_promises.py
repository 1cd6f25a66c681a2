"""Everything that can happen to three messages in two regions, with crashes and take-overs."""

import sys
from collections.abc import Callable

import pytest

from shared.domain import decision
from shared.domain.decision import Busy, Decision, Duplicate, Gap, Proceed
from shared.domain.journal import Entry
from shared.domain.message import Message
from tests.model.exploration import Explored, explore
from tests.model.protocol import Protocol
from tests.model.situation import Situation

pytestmark = pytest.mark.slow


SITUATIONS_MAX = 600_000
# The west has not got the first message, and the others the wrong way round.
GAP_IN_WEST = ((0, 1, 2), (2, 1))
BEGINNINGS = {
    "two crashes": Situation(GAP_IN_WEST, crashes=2, slow=0),
    "a worker taken for dead": Situation(((0, 1, 2), (1, 2)), crashes=0, slow=1),
}


@pytest.mark.parametrize(
    "name", [pytest.param("two crashes", marks=pytest.mark.proof), "a worker taken for dead"]
)
def test_every_situation_keeps_the_promises(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = explore(Protocol(decision.decide), BEGINNINGS[name], SITUATIONS_MAX)

    with capsys.disabled():
        sys.stdout.write(f"\nmodel, {name}: {found.situations:,} situations, ")
        sys.stdout.write(f"{found.steps:,} steps, {found.ends} ends\n")
    assert found.broken is None, found.way
    assert found.situations > 10_000
    assert found.ends > 1


def before_its_turn(head: Entry | None, message: Message, *, from_parked: bool = False) -> Decision:
    """Decide without looking for a gap."""
    found = decision.decide(head, message, from_parked=from_parked)
    return Proceed() if isinstance(found, Gap) else found


def twice(head: Entry | None, message: Message, *, from_parked: bool = False) -> Decision:
    """Decide without knowing what was done."""
    found = decision.decide(head, message, from_parked=from_parked)
    return Proceed() if isinstance(found, Duplicate) else found


def over_a_claim(head: Entry | None, message: Message, *, from_parked: bool = False) -> Decision:
    """Decide without respect for somebody's claim."""
    found = decision.decide(head, message, from_parked=from_parked)
    return Proceed() if isinstance(found, Busy) else found


def done_when_claimed(
    head: Entry | None, message: Message, *, from_parked: bool = False
) -> Decision:
    """Take any claim for the message's own."""
    found = decision.decide(head, message, from_parked=from_parked)
    return Busy(found.at, same=True) if isinstance(found, Busy) else found


def done_too_early(head: Entry | None, message: Message, *, from_parked: bool = False) -> Decision:
    """Take the message whose turn it is for one that was done."""
    found = decision.decide(head, message, from_parked=from_parked)
    is_second = head is not None and message.number is not None and message.number.sequence == 2
    return Duplicate() if isinstance(found, Proceed) and is_second else found


@pytest.mark.parametrize(
    ("decide", "broken"),
    [
        (before_its_turn, "once and in order"),
        (twice, "once and in order"),
        (over_a_claim, "once and in order"),
        (done_when_claimed, "no loss"),
        (done_too_early, "no loss"),
    ],
)
def test_a_wrong_decision_is_found_with_the_way_to_it(
    decide: Callable[..., Decision], broken: str
) -> None:
    found: Explored = explore(
        Protocol(decide), Situation(GAP_IN_WEST, crashes=0, slow=1), SITUATIONS_MAX
    )

    assert found.broken == broken
    assert 1 < len(found.way) < 40
