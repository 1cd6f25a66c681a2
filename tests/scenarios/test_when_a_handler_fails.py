"""A handler fails: its message is kept with the reason, and a person decides."""

from dataclasses import replace

import pytest

from shared.domain.errors import NotHalted
from shared.domain.handler import Context, Handlers
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import Faulted, Parked, Processed
from tests.business import BusinessWorld, failing, payment
from tests.world import RETRY, SKIP, Account, Amount, World, handlers, message, take

# When a handler fails, its message is kept with the reason; its session halts or goes on.

POISON = message(1, kind="account.burn")
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
    assert isinstance((await take(world.east, message(0), POISON))[1], Faulted)
    assert await world.west.consumer.consume(message(2)) == Parked()
    assert await world.east.consumer.consume(message(3)) == Parked()
    return world


async def test_the_message_is_kept_whole_with_its_reason_and_the_error_queues_have_a_copy() -> None:
    world = await poisoned()

    fault, (report,) = world.entries()[1], world.reports()

    assert (fault["status"], fault["reason"]) == ("faulted", "ArithmeticError: cannot burn 2")
    assert fault["message"]["body"].encode() == POISON.body
    assert report["reason"] == "ArithmeticError: cannot burn 2"
    assert report["message"]["id"] == POISON.id
    assert report["message"]["body"].encode() == POISON.body


async def test_the_session_halts_at_once_and_others_flow() -> None:
    world = await poisoned()

    assert (world.amounts(), world.clock.now()) == ([1], 0)
    assert isinstance(await world.east.consumer.consume(message(0, session="acc-8")), Processed)


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


async def test_a_second_fault_behind_the_first_halts_the_draining(world: World) -> None:
    burns = [message(n, kind="account.burn") for n in range(2)]
    await take(world.east, *burns, message(2))

    await world.east.resolver.resolve("acc-7", SKIP)
    assert world.amounts() == []

    await world.east.resolver.resolve("acc-7", SKIP)
    assert world.amounts() == [3]


async def test_a_type_that_skips_goes_on_by_itself_and_is_reported(world: World) -> None:
    outcomes = await take(world.east, message(0), message(1, kind="account.hint"), message(2))

    assert [type(outcome) for outcome in outcomes] == [Processed, Faulted, Processed]
    assert world.amounts() == [1, 3]
    assert world.entries()[1]["reason"] == "ArithmeticError: hints are not taken"
    assert len(world.reports()) == 1
    assert (await world.east.standstills.find(limit=10)).standstills == ()


async def test_an_output_that_no_queue_takes_is_a_fault_of_its_message(world: World) -> None:
    outcome = await world.east.consumer.consume(message(0, amount=20, kind="account.boast"))

    assert isinstance(outcome, Faulted)
    assert "over 1000000" in str(outcome.entry.reason)
    assert world.bus.messages("east", "out") == []


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


# When a fault gives way to another, each has a report of its own, and its own decision.


async def test_a_message_that_fails_for_another_reason_has_another_report() -> None:
    world = BusinessWorld()
    for why in ("closed", "on strike"):
        world.outside.after = failing(ConnectionError(why))
        if why == "closed":
            await world.east.consumer.consume(payment(0))
        else:
            await world.west.resolver.resolve("acc-7", RETRY)

    assert [report["reason"] for report in world.reports()] == [
        "ConnectionError: closed",
        "ConnectionError: on strike",
    ]
    assert len({report.id for report in world.bus.messages("east", "errors")}) == 2


@pytest.mark.parametrize(
    "late",
    [
        replace(SKIP, who="Bob", at=0),
        ResolutionRequest(ResolutionAction.EDIT, "Bob", "a typo", b'{"amount":-1}', at=0),
    ],
)
async def test_a_decision_about_a_fault_that_is_over_leaves_the_next_alone(
    world: World, late: ResolutionRequest
) -> None:
    await take(world.east, *(message(n, kind="account.burn") for n in range(2)))
    entry = await world.east.resolver.resolve("acc-7", replace(SKIP, at=0))
    assert entry.resolution is not None

    # Bob looked before Ada decided, and says so after the session has halted again.
    with pytest.raises(NotHalted, match="is halted by entry"):
        await world.west.resolver.resolve("acc-7", late)

    assert world.amounts() == []
    newest = world.entries()[-1]
    assert newest["status"] == "faulted"
    edit = replace(late, action=ResolutionAction.EDIT, body=b'{"amount":-2}', at=int(newest["id"]))
    await world.west.resolver.resolve("acc-7", edit)
    assert world.amounts() == [-2]
