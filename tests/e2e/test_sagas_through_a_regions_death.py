"""Sagas on real hosts: one region dies with sagas under way, the other walks them to their ends."""

from typing import Any

import pytest

from local.testing.patience import until
from tests.e2e.stack import REGIONS, Stack

pytestmark = pytest.mark.e2e

SETTINGS = {"LOCKSTEP_LEASE_SECONDS": "2"}
LINES = [{"product": "p", "quantity": 10}]


@pytest.fixture
def shop(stack: Stack) -> Stack:
    """A stack with goods for sale, and a customer with money."""
    for session, kind, body in (
        ("stock%3Ap", "stock.receive", {"quantity": 100}),
        ("account%3Aada", "account.deposit", {"amount": 99}),
    ):
        stack.ask("east", f"sessions/{session}/messages?type={kind}", "POST", body)
    until(
        lambda: bool(stack.state("east", "stock:p") and stack.state("east", "account:ada")),
        what="the first deliveries",
    )
    return stack


def ended(stack: Stack, region: str, key: str) -> dict[str, Any]:
    until(
        lambda: stack.saga(region, key)["state"] not in ("awaited", "running"),
        what=f"the end of {key}",
    )
    return stack.saga(region, key)


def is_waiting(stack: Stack, region: str, key: str) -> bool:
    steps = {step["name"]: step["outcome"] for step in stack.saga(region, key)["steps"]}
    return steps["reserve.p"] == "done" and steps["charge"] is None


def test_a_saga_is_started_once_told_adopted_and_never_harmed(shop: Stack) -> None:
    stack = shop
    # From both regions at once, and with other content.
    assert [stack.start_saga(region, "plain", lines=LINES)[0] for region in REGIONS] == [202, 202]
    status, problem = stack.start_saga("west", "plain", lines=LINES, amount=11)
    assert (status, problem["detail"]) == (409, "it was started with other content")
    plain = ended(stack, "east", "plain")
    assert {step["outcome"] for step in plain["steps"]} == {"done"}
    assert plain["state"] == "completed"

    # An event for a saga that starts later, and only by its own route.
    assert stack.ask("west", "sagas/early/events/rejected", "POST")[0] == 202
    assert stack.saga("east", "early")["state"] == "awaited"
    placed = {"customer": "ada", "amount": 10, "lines": LINES, "approval_seconds": 600}
    time = stack.saga("east", "plain")["started"].replace("+", "%2B")
    path = f"sessions/saga%3Aearly/messages?type=order.place&time={time}"
    assert stack.ask("east", path, "POST", placed)[0] == 403
    start = {"lines": LINES, "approval_seconds": 600}
    assert stack.start_saga("east", "early", **start)[0] == 202
    assert ended(stack, "west", "early")["state"] == "compensated"

    # Three wait for approval when their region dies.
    keys = ("approved", "rejected", "cancelled")
    for key in keys:
        stack.start_saga("east", key, lines=LINES, approval_seconds=1200)
    until(lambda: all(is_waiting(stack, "west", key) for key in keys), what="waiting for approval")
    listed = stack.ask("east", "sagas?state=running")[1]["sagas"]
    assert {saga["key"] for saga in listed} >= set(keys)
    stack.kill("east")

    assert stack.ask("west", "sagas/approved/events/approved", "POST")[0] == 202
    assert stack.ask("west", "sagas/rejected/events/rejected", "POST")[0] == 202
    assert stack.ask("west", "sagas/cancelled/cancel", "POST")[0] == 202
    ends = {key: ended(stack, "west", key)["state"] for key in keys}
    assert ends == {
        "approved": "completed",
        "rejected": "compensated",
        "cancelled": "compensated",
    }
    stock = {"received": 100, "left": 80, "shipped": 20, "reserved": {}}
    assert stack.state("west", "stock:p") == stock
    assert stack.state("west", "account:ada") == {"balance": 79, "paid": 20}

    # The dead region comes back, with everything it had under way.
    stack.start("east")
    assert stack.ask("east", "sagas/rejected/events/approved", "POST")[0] == 409
    assert stack.ask("east", "sagas/cancelled/events/approved", "POST")[0] == 409
    assert stack.ask("east", "sagas/approved/cancel", "POST")[0] == 409

    def known_in_east() -> dict[str, str]:
        listed = stack.ask("east", "sagas")[1]["sagas"]
        return {saga["key"]: saga["state"] for saga in listed if saga["key"] in keys}

    until(lambda: known_in_east() == ends, what="the ends in the region that came back")
    assert stack.ask("east", "sagas?state=running")[1]["sagas"] == []
    assert {key: stack.saga("east", key)["state"] for key in keys} == ends
    assert stack.state("east", "stock:p") == stock
    assert stack.state("east", "account:ada") == {"balance": 79, "paid": 20}
