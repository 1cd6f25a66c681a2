"""What a message costs when nothing fails, counted exactly by the stores themselves."""

import pytest

from local.testing.answers import request
from local.testing.patience import eventually, until
from proof.testbed.cloud import CALLS_SETTING
from tests.e2e.stack import Stack, assert_once_and_in_order, flights

pytestmark = pytest.mark.e2e

SESSIONS = 20
EACH = 10
MESSAGES = SESSIONS * EACH
# Queries of a process that is asked for its health: its look at the start. The question is a read.
LOOK = 1
# Timers cost queries per run, not per message: here they are switched off. With one call of a
# session at a time nothing is folded, whatever waits.
TIMERS = {f"AzureWebJobs_{name}_Disabled": "true" for name in ("sweep", "compact")}
SETTINGS = {**TIMERS, CALLS_SETTING: "1"}


async def test_one_strong_write_at_most_one_read_and_no_abandon(stack: Stack) -> None:
    sent = flights(SESSIONS, EACH)

    # The secondary looks when the primary is done, as it does after its delay.
    stack.cloud.control.act("west", "stop")
    asked = asked_primary = look(stack, "east")
    await stack.send(sent, LOCKSTEP_SECONDARY_DELAY_SECONDS="1")
    until(lambda: stack.completed("east") == MESSAGES, what="the primary's work")
    primary = journal_operations(stack)
    stack.cloud.control.act("west", "start")
    asked += look(stack, "west")
    until(lambda: stack.completed("west") == MESSAGES, what="the secondary's work")
    until(lambda: queries(stack) >= SESSIONS + 2 * LOOK, what="the secondary's look")
    both = journal_operations(stack)

    # Each process looks once at the list of regions; the first of all, the sender, stores it, and
    # the first app to which a message comes looks once more and adds whose the journal is.
    writes = {"batch": {"200": MESSAGES + 2}}
    # For the messages the primary reads nothing: it writes once for each.
    assert primary.pop("query") == {"200": LOOK}
    reads = sum(primary.pop("read").values())
    assert primary == writes
    assert 4 <= reads <= 3 + asked_primary
    # The secondary looks at the first message of each session, then at a page of the others.
    assert both.pop("query") == {"200": SESSIONS + 2 * LOOK}
    # Its process looks at the list once or twice: its first message may come before it is asked
    # for its health, or after.
    reads = sum(both.pop("read").values())
    assert both == writes
    assert 6 + SESSIONS <= reads <= 5 + SESSIONS + asked
    for region in ("east", "west"):
        # What comes just as its session is given up for being empty is handed over once more.
        delivered = stack.ended(f"servicebus.{region}", "deliver")
        assert delivered.keys() == {"ok"}
        assert delivered["ok"] >= MESSAGES
        assert stack.ended(f"servicebus.{region}", "complete") == {"ok": MESSAGES}
        assert stack.ended(f"servicebus.{region}", "abandon") == {}
        assert stack.ended(f"servicebus.{region}", "dead-letter") == {}
        assert stack.ended(f"servicebus.{region}", "expire-lock") == {}
    assert_once_and_in_order(stack.entries(), sent)


def look(stack: Stack, region: str) -> int:
    """Let a region's process look whether it can read the journal, which it does only once.

    Otherwise it looks with the first changes that the feed brings, before or after the count.
    Returns how often it was asked, each of which may have been a read: a host that has just started
    may be asked for its health more than once until it is well.
    """
    before, asked = queries(stack), 0
    url = f"{stack.cloud.contract['hosts'][region]}/api/health"

    def is_well() -> bool:
        nonlocal asked
        asked += 1
        return request(url).status == 200

    eventually(is_well)
    until(lambda: queries(stack) >= before + LOOK, what=f"the look of {region}")
    return asked


def queries(stack: Stack) -> int:
    return stack.ended("cosmos.journal", "query").get("200", 0)


def journal_operations(stack: Stack) -> dict[str, dict[str, int]]:
    """What was done to the journal, without the change feed's polling."""
    operations = stack.cloud.control.read_counters().get("cosmos.journal", {})
    return {
        operation: stack.ended("cosmos.journal", operation)
        for operation in operations
        if operation != "feed"
    }
