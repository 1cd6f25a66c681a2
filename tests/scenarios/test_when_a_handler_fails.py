"""A handler fails: its message is kept with the reason, and a person decides."""

import json
from dataclasses import replace

import pytest

from shared.domain.errors import InvalidMessage, NotHalted
from shared.domain.handler import Context, Handlers
from shared.engine.consume.outcomes import AlreadyDone, Faulted, Parked, Processed
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from tests.business import ATTEMPTS, Outside, payment, world_of
from tests.world import REGIONS, Account, Amount, World, handlers, message

# When a handler fails: a poisoned message is kept with its reason; its session halts or goes on; a
# person resolves.


POISON = message(1, kind="account.burn")
SKIP = ResolutionRequest(ResolutionAction.SKIP, "Ada", "sent by mistake")
RETRY = ResolutionRequest(ResolutionAction.RETRY, "Ada", "fixed the handler")
EDIT = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"amount":-2}')


banking = Handlers.joined([handlers])


@banking.register("account.withdraw", state=Account, body=Amount)
def withdraw(account: Account, body: Amount, _: Context) -> Account:
    """Book a withdrawal if there is enough money."""
    if sum(account.amounts) < body.amount:
        raise ArithmeticError(f"there is no {body.amount}")
    return Account(amounts=[*account.amounts, -body.amount])


async def poisoned() -> World:
    """A good message, a poisoned one, and two that come after it."""
    world = World()
    await world.east.consumer.consume(message(0))
    assert isinstance(await world.east.consumer.consume(POISON), Faulted)
    assert await world.west.consumer.consume(message(2)) == Parked()
    assert await world.east.consumer.consume(message(3)) == Parked()
    return world


async def test_the_message_is_kept_whole_with_its_reason() -> None:
    world = await poisoned()

    fault = world.entries()[1]

    assert (fault["status"], fault["reason"]) == ("faulted", "ArithmeticError: cannot burn 2")
    assert fault["message"]["body"].encode() == POISON.body


async def test_a_copy_goes_to_the_error_queue_of_both_regions() -> None:
    world = await poisoned()

    (east,), (west,) = world.bus.messages("east", "errors"), world.bus.messages("west", "errors")

    assert east == west
    report = json.loads(east.body)
    assert report["reason"] == "ArithmeticError: cannot burn 2"
    assert report["message"]["id"] == POISON.id
    assert report["message"]["body"].encode() == POISON.body


async def test_the_session_halts_and_later_messages_are_kept_not_applied() -> None:
    world = await poisoned()

    assert world.amounts() == [1]
    assert world.clock.now() == 0


async def test_other_sessions_flow() -> None:
    world = await poisoned()

    assert isinstance(await world.east.consumer.consume(message(0, session="acc-8")), Processed)


async def test_the_other_copy_of_the_poison_is_settled_and_not_tried_again() -> None:
    world = await poisoned()
    entries = len(world.entries())

    assert await world.west.consumer.consume(POISON) == AlreadyDone()

    assert len(world.entries()) == entries


@pytest.mark.parametrize(("decision", "amounts"), [(SKIP, [1, 3, 4]), (EDIT, [1, -2, 3, 4])])
async def test_a_resolution_drains_what_waited_in_order(
    decision: ResolutionRequest, amounts: list[int]
) -> None:
    world = await poisoned()

    entry = await world.west.resolver.resolve("acc-7", decision)

    assert entry.resolution is not None
    assert (entry.resolution.who, entry.resolution.why) == (decision.who, decision.why)
    assert world.amounts() == amounts
    assert isinstance(await world.east.consumer.consume(message(4)), Processed)


async def test_a_retry_that_fails_again_halts_again_and_loses_nothing() -> None:
    world = await poisoned()

    await world.east.resolver.resolve("acc-7", RETRY)
    assert world.amounts() == [1]

    await world.east.resolver.resolve("acc-7", SKIP)
    assert world.amounts() == [1, 3, 4]


async def test_messages_of_other_producers_wait_and_are_drained_too(world: World) -> None:
    await world.east.consumer.consume(message(0, kind="account.burn"))
    assert await world.east.consumer.consume(message(0, amount=7, group="other")) == Parked()
    assert await world.east.consumer.consume(message(1)) == Parked()

    await world.east.resolver.resolve("acc-7", SKIP)

    assert sorted(world.amounts()) == [2, 7]
    assert "parked" not in world.entries()[-1]


async def test_a_second_fault_behind_the_first_halts_the_draining(world: World) -> None:
    await world.east.consumer.consume(message(0, kind="account.burn"))
    await world.east.consumer.consume(message(1, kind="account.burn"))
    await world.east.consumer.consume(message(2))

    await world.east.resolver.resolve("acc-7", SKIP)
    assert world.amounts() == []

    await world.east.resolver.resolve("acc-7", SKIP)
    assert world.amounts() == [3]


async def test_a_type_that_skips_goes_on_by_itself_and_is_reported(world: World) -> None:
    await world.east.consumer.consume(message(0))
    assert isinstance(await world.east.consumer.consume(message(1, kind="account.hint")), Faulted)

    await world.east.consumer.consume(message(2))

    assert world.amounts() == [1, 3]
    assert world.entries()[1]["reason"] == "ArithmeticError: hints are not taken"
    assert len(world.bus.messages("east", "errors")) == 1
    assert (await world.east.standstills.find(limit=10)).standstills == ()


async def test_a_body_that_is_not_the_model_is_a_fault_like_any_other(world: World) -> None:
    await world.east.consumer.consume(message(0))
    broken = replace(message(1), body=b"not json")

    outcome = await world.east.consumer.consume(broken)

    assert isinstance(outcome, Faulted)
    assert "Invalid JSON" in str(outcome.entry.reason)


async def test_an_output_that_no_queue_takes_is_a_fault_of_its_message(world: World) -> None:
    outcome = await world.east.consumer.consume(message(0, amount=20, kind="account.boast"))

    assert isinstance(outcome, Faulted)
    assert "over 1000000" in str(outcome.entry.reason)
    assert world.bus.messages("east", "out") == []


async def test_a_session_that_is_not_halted_has_nothing_to_resolve(world: World) -> None:
    with pytest.raises(NotHalted):
        await world.east.resolver.resolve("acc-7", SKIP)


@pytest.mark.parametrize(
    ("action", "who", "why", "body"),
    [
        (ResolutionAction.SKIP, "", "why", None),
        (ResolutionAction.SKIP, "Ada", "", None),
        (ResolutionAction.SKIP, "Ada", "why", b"{}"),
        (ResolutionAction.EDIT, "Ada", "why", None),
    ],
)
def test_a_decision_must_be_complete(
    action: ResolutionAction, who: str, why: str, body: bytes | None
) -> None:
    with pytest.raises(InvalidMessage):
        ResolutionRequest(action, who, why, body)


async def test_a_fault_that_another_worker_prevents_is_reported_to_nobody() -> None:
    # The east remembers an account without money, on which the withdrawal fails.
    world = World(handlers=banking)
    withdrawal = message(0, 3, kind="account.withdraw", group="till")
    await world.east.consumer.consume(message(0, 1))
    await world.west.consumer.consume(message(1, 5))

    assert isinstance(await world.east.consumer.consume(withdrawal), Processed)

    assert world.amounts() == [1, 5, -3]
    for region in ("east", "west"):
        assert world.bus.messages(region, "errors") == []


# When a fault gives way to another: a fault is followed by another one: each has a report of its
# own, and its own decision.


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
