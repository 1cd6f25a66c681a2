"""A run waits for what is slow, and not for what stands still."""

import pytest

from proof.demo.waiting import STALLED_SECONDS, Movement, RunStalled


def test_a_run_is_given_up_when_nothing_it_looks_at_has_moved_for_long() -> None:
    now = 0.0
    movement = Movement(clock=lambda: now)

    for pending in range(20, 0, -1):
        # Of two things the slower one moves, as rarely as it may.
        movement.see("the journal", pending)
        movement.see("the feed's log", 7)
        now += STALLED_SECONDS - 1
        movement.require("the queues to drain")

    movement.see("the journal", 1)
    now += 2
    with pytest.raises(RunStalled, match="waited for the queues to drain"):
        movement.require("the queues to drain")
