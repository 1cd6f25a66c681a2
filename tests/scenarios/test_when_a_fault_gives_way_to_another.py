"""A fault is followed by another one: each has a report of its own, and its own decision."""

import json

import pytest

from shared.domain.errors import NotHalted
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from tests.business import ATTEMPTS, Outside, payment, world_of
from tests.world import REGIONS, World, message


async def test_a_message_that_fails_for_another_reason_has_another_report() -> None:
    outside = Outside()
    world = world_of(outside)
    reasons = [*["closed"] * ATTEMPTS, *["on strike"] * ATTEMPTS]

    async def fail() -> None:
        raise ConnectionError(reasons.pop(0))

    outside.after = fail
    await world.east.consumer.consume(payment(0))
    await world.west.resolver.resolve(
        "acc-7", ResolutionRequest(ResolutionAction.RETRY, "Ada", "it is open again")
    )

    for region in REGIONS:
        reports = world.bus.messages(region, "errors")
        told = [json.loads(report.body)["reason"] for report in reports]
        assert told == ["ConnectionError: closed", "ConnectionError: on strike"]
        assert len({report.id for report in reports}) == 2


@pytest.mark.parametrize(
    "decision",
    [
        ResolutionRequest(ResolutionAction.SKIP, "Bob", "sent by mistake", at=0),
        ResolutionRequest(ResolutionAction.EDIT, "Bob", "a typo", b'{"amount":-1}', at=0),
    ],
)
async def test_a_decision_about_a_fault_that_is_over_leaves_the_next_one_alone(
    world: World, decision: ResolutionRequest
) -> None:
    await world.east.consumer.consume(message(0, kind="account.burn"))
    await world.east.consumer.consume(message(1, kind="account.burn"))
    first = ResolutionRequest(ResolutionAction.SKIP, "Ada", "sent by mistake", at=0)
    entry = await world.east.resolver.resolve("acc-7", first)
    assert entry.resolution is not None

    # Bob looked before Ada decided, and says so after the session has halted again.
    with pytest.raises(NotHalted, match="is halted by entry"):
        await world.west.resolver.resolve("acc-7", decision)

    assert world.amounts() == []
    newest = world.entries()[-1]
    assert newest["status"] == "faulted"
    second = ResolutionRequest(
        ResolutionAction.EDIT, "Bob", "a typo", b'{"amount":-2}', at=int(newest["id"])
    )
    await world.west.resolver.resolve("acc-7", second)
    assert world.amounts() == [-2]
