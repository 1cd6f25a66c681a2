"""A coordinator applies a command again: it acts once, and the recorded answer comes back."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from shared.domain.errors import InvalidMessage, LockstepError, NotRecorded
from shared.domain.handler import Context, Handled
from shared.domain.message import Message
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.consume.outcomes import Answered, Conflicting, Failed, Waiting
from shared.testkit.injected_faults import CallFault
from tests.business import BusinessWorld, plain
from tests.world import REGIONS, Account, Amount, booked, message

# Commands to one account, which answers with what it remembers.
ASK, OTHERS = plain(0, "account.ask"), [plain(n, "account.ask") for n in (1, 2)]


@pytest.fixture
def world(world: BusinessWorld) -> BusinessWorld:
    """Two regions whose accounts answer, too."""

    @world.handlers.register("account.ask", state=Account, body=Amount)
    def ask(account: Account, body: Amount, _: Context) -> Handled[Account]:
        return Handled(booked(account, body), answer=booked(account, body))

    return world


async def apply(world: BusinessWorld, command: Message, region: str = "east") -> object:
    """Ask in a new process."""
    return await world.worker(region).consumer.ask(command)


async def test_it_acts_once_and_answers_the_same_in_every_process_and_region(
    world: BusinessWorld,
) -> None:
    first = await apply(world, ASK)
    await apply(world, OTHERS[0])

    again = [await apply(world, ASK, region) for region in REGIONS]

    assert first == Answered(0, 0, {"amounts": [1]})
    assert again == [first, first]
    assert world.amounts() == [1, 2]


async def test_a_handler_that_leaves_no_record_is_not_run_and_fails_by_name(
    world: BusinessWorld,
) -> None:
    with pytest.raises(NotRecorded, match=r"'account.note' is idempotent.*publish"):
        await apply(world, plain(0, "account.note"))

    assert world.outside.asked == []


async def test_other_content_under_its_id_fails_by_name(world: BusinessWorld) -> None:
    await apply(world, ASK)

    reply = await apply(world, replace(ASK, body=b'{"amount":5}'))

    assert isinstance(reply, Conflicting)
    assert "other content" in reply.reason
    assert world.amounts() == [1]


async def test_a_fault_that_is_skipped_is_the_answer(world: BusinessWorld) -> None:
    for _ in range(2):
        reply = await apply(world, plain(0, "account.hint"))
        assert reply == Failed("ArithmeticError: hints are not taken", 0)


async def test_a_fault_that_halts_is_no_answer_until_a_person_decides(world: BusinessWorld) -> None:
    burnt = plain(0, "account.burn")
    replies = [await apply(world, one) for one in (burnt, burnt, *OTHERS)]

    fault = Failed("ArithmeticError: cannot burn 1", 0, halts=True)
    assert replies == [fault, fault, Waiting(), Waiting()]

    edit = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"amount":-2}')
    await world.east.resolver.resolve("acc-7", edit)

    # Those that waited together have an answer each.
    assert [await apply(world, one) for one in (burnt, *OTHERS)] == [
        Answered(3, 3),
        Answered(4, 4, {"amounts": [-2, 2]}),
        Answered(5, 5, {"amounts": [-2, 2, 3]}),
    ]


async def test_one_that_waits_beside_a_claim_is_not_given_the_answer_of_the_claim(
    world: BusinessWorld,
) -> None:
    is_asked, may_go_on = asyncio.Event(), asyncio.Event()

    async def take_time() -> None:
        is_asked.set()
        await may_go_on.wait()

    world.outside.before = take_time
    paying = asyncio.create_task(apply(world, plain(0, "account.pay")))
    await is_asked.wait()
    assert await apply(world, OTHERS[0], "west") == Waiting()

    # The claim is ended, and its owner dies before it comes to what waits beside it.
    world.journal.fault_plan.plan("append", CallFault.REFUSED)
    may_go_on.set()
    with suppress(LockstepError):
        assert await paying == Answered(0, 0)

    assert await world.east.consumer.read_reply(OTHERS[0]) == Waiting()
    assert await apply(world, OTHERS[0]) == Answered(1, 1, {"amounts": [1, 2]})


async def test_a_numbered_message_is_no_command(world: BusinessWorld) -> None:
    with pytest.raises(InvalidMessage, match="no producer number"):
        await apply(world, message(0, kind="account.ask"))
