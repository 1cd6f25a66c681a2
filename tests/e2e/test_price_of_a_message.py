"""What a message costs when nothing fails, counted exactly by the stores themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, assert_once_and_in_order, flights, running_stack, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(360)]

SESSIONS = 20
EACH = 10
MESSAGES = SESSIONS * EACH


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    # The sweep costs a query per run, not per message: here it never runs.
    with running_stack(tmp_path, LOCKSTEP_SWEEP_SCHEDULE="0 0 0 1 1 *") as stack:
        yield stack


async def test_one_strong_write_at_most_one_read_and_no_abandon(stack: Stack) -> None:
    sent = flights(SESSIONS, EACH)

    # The secondary looks when the primary is done, as it does after its delay.
    stack.cloud.control.act("west", "stop")
    await stack.send(sent, LOCKSTEP_SECONDARY_DELAY_SECONDS="1")
    until(lambda: stack.completed("east") == MESSAGES, seconds=120, what="the primary's work")
    primary = journal_operations(stack)
    stack.cloud.control.act("west", "start")
    until(lambda: stack.completed("west") == MESSAGES, seconds=120, what="the secondary's work")
    both = journal_operations(stack)

    # Each process looks once at the list of regions; the first of all, the sender, stores it.
    writes = {"batch": {"200": MESSAGES + 1}}
    # For the messages the primary reads nothing: it writes once for each.
    assert primary == writes | {"read": {"404": 1, "200": 1}}
    # The secondary looks at the first message of each session, then at a page of the others.
    reads = {"404": 1, "200": 2 + SESSIONS}
    assert both == writes | {"read": reads, "query": {"200": SESSIONS}}
    for region in ("east", "west"):
        assert stack.ended(f"servicebus.{region}", "deliver") == {"ok": MESSAGES}
        assert stack.ended(f"servicebus.{region}", "abandon") == {}
        assert stack.ended(f"servicebus.{region}", "dead-letter") == {}
        assert stack.ended(f"servicebus.{region}", "expire-lock") == {}
    assert_once_and_in_order(stack.entries(), sent)


def journal_operations(stack: Stack) -> dict[str, dict[str, int]]:
    """What was done to the journal, without the change feed's polling."""
    operations = stack.cloud.control.read_counters().get("cosmos.journal", {})
    return {
        operation: stack.ended("cosmos.journal", operation)
        for operation in operations
        if operation != "feed"
    }
