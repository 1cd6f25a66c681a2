"""What a message costs when nothing fails, counted exactly by the stores themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, assert_once_and_in_order, flights, running_stack, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

SESSIONS = 20
EACH = 10
MESSAGES = SESSIONS * EACH
# Long enough that the primary is done before the secondary looks, on a slow machine too.
DELAY_SECONDS = "10"

type Statuses = dict[str, int]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    # The sweep costs a query per run, not per message: here it never runs.
    with running_stack(tmp_path, LOCKSTEP_SWEEP_SCHEDULE="0 0 0 1 1 *") as stack:
        yield stack


async def test_one_strong_write_at_most_one_read_and_no_abandon(stack: Stack) -> None:
    sent = flights(SESSIONS, EACH)

    await stack.send(sent, LOCKSTEP_SECONDARY_DELAY_SECONDS=DELAY_SECONDS)
    until(lambda: completed(stack, "east") == MESSAGES, seconds=60, what="the primary's work")
    primary = journal_operations(stack)
    until(lambda: completed(stack, "west") == MESSAGES, seconds=60, what="the secondary's work")
    both = journal_operations(stack)

    # The primary looks at each session once, and then writes once per message.
    assert primary == {"batch": {"200": MESSAGES}, "query": {"200": SESSIONS}}
    # The secondary looks at each session once, and writes nothing at all.
    assert both == {"batch": {"200": MESSAGES}, "query": {"200": 2 * SESSIONS}}
    for region in ("east", "west"):
        assert counted(stack, f"servicebus.{region}", "deliver") == {"ok": MESSAGES}
        assert counted(stack, f"servicebus.{region}", "abandon") == {}
        assert counted(stack, f"servicebus.{region}", "dead-letter") == {}
        assert counted(stack, f"servicebus.{region}", "expire-lock") == {}
    assert_once_and_in_order(stack.entries(), sent)


def journal_operations(stack: Stack) -> dict[str, Statuses]:
    """What was done to the journal, without the change feed's polling."""
    operations = stack.counted().get("cosmos.journal", {})
    return {
        operation: counted(stack, "cosmos.journal", operation)
        for operation in operations
        if operation != "feed"
    }


def completed(stack: Stack, region: str) -> int:
    """How many messages a region has settled."""
    return sum(counted(stack, f"servicebus.{region}", "complete").values())


def counted(stack: Stack, component: str, operation: str) -> Statuses:
    """How often an operation ended in each status."""
    rows = stack.counted().get(component, {}).get(operation, {})
    return {status: int(row["count"]) for status, row in rows.items()}
