"""A coordinator applies a command again: it acts once, and the recorded answer comes back."""

import asyncio
from contextlib import suppress
from dataclasses import replace

import pytest

from shared.domain.errors import InvalidMessage, LockstepError, Unavailable
from shared.domain.handler import Context, Handled
from shared.domain.message import Message
from shared.engine.operate.resolve import ResolutionAction, ResolutionRequest
from shared.engine.sagas.steps import Answered, Failed, read_reply
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
    """Apply a command in a new process."""
    return await world.worker(region).commands.apply(command)


async def test_it_acts_once_and_answers_the_same_in_every_process_and_region(
    world: BusinessWorld,
) -> None:
    first = await apply(world, ASK)
    await apply(world, OTHERS[0])

    again = [await apply(world, ASK, region) for region in REGIONS]

    assert first == Answered({"amounts": [1]})
    assert again == [first, first]
    assert world.amounts() == [1, 2]


async def test_a_handler_that_leaves_no_record_is_not_run_and_fails_by_name(
    world: BusinessWorld,
) -> None:
    reply = await apply(world, plain(0, "account.note"))

    assert isinstance(reply, Failed)
    assert "'account.note'" in reply.reason
    assert "idempotent" in reply.reason
    assert world.outside.asked == []


async def test_other_content_under_its_id_fails_by_name(world: BusinessWorld) -> None:
    await apply(world, ASK)

    reply = await apply(world, replace(ASK, body=b'{"amount":5}'))

    assert isinstance(reply, Failed)
    assert "other content" in reply.reason
    assert world.amounts() == [1]


async def test_a_fault_that_is_skipped_is_the_answer(world: BusinessWorld) -> None:
    for _ in range(2):
        reply = await apply(world, plain(0, "account.hint"))
        assert reply == Failed("ArithmeticError: hints are not taken")


async def test_a_fault_that_halts_is_no_answer_until_a_person_decides(world: BusinessWorld) -> None:
    burnt = plain(0, "account.burn")
    for halted in (burnt, burnt, *OTHERS):
        with pytest.raises(Unavailable):
            await apply(world, halted)

    edit = ResolutionRequest(ResolutionAction.EDIT, "Ada", "a typo", b'{"amount":-2}')
    await world.east.resolver.resolve("acc-7", edit)

    # Those that waited together have an answer each.
    assert [await apply(world, one) for one in (burnt, *OTHERS)] == [
        Answered({}),
        Answered({"amounts": [-2, 2]}),
        Answered({"amounts": [-2, 2, 3]}),
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
    with pytest.raises(Unavailable):
        await apply(world, OTHERS[0], "west")

    # The claim is ended, and its owner dies before it comes to what waits beside it.
    world.journal.fault_plan.plan("append", CallFault.REFUSED)
    may_go_on.set()
    with suppress(LockstepError):
        assert await paying == Answered({})

    assert await read_reply(world.journal, OTHERS[0]) is None
    assert await apply(world, OTHERS[0]) == Answered({"amounts": [1, 2]})


async def test_a_numbered_message_is_no_command(world: BusinessWorld) -> None:
    with pytest.raises(InvalidMessage, match="no producer number"):
        await apply(world, message(0, kind="account.ask"))
