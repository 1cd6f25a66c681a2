"""A session that has ended takes nothing new: it is refused by name, and copies are copies."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from pydantic import BaseModel

from shared.domain.errors import NotAllowed, NotOpen, SessionEnded, Unavailable
from shared.domain.handler import HERE, Context, Handled, Handlers, Kind, Output
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.domain.producer import Draft
from shared.domain.resolution import ResolutionAction, ResolutionRequest
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Conflicting, Parked, Processed, Refused
from shared.testkit.given import SENT_AT
from shared.testkit.injected_faults import PASSING_FAULTS, CallFault, ProcessKilled
from tests.world import IMPATIENT, Account, Amount, Receipt, World, booked, message, require, take

END = ResolutionRequest(ResolutionAction.END, "Ada", "the account was closed")
handlers = Handlers()


class Notes(BaseModel):
    """A large state of which little changes."""

    text: str = ""
    amount: int = 0


@handlers.register("account.add", state=Account, body=Amount)
def add(account: Account, body: Amount, _: Context) -> Account:
    """Book an amount."""
    return booked(account, body)


@handlers.register("account.close", state=Account, body=Amount)
def close(account: Account, body: Amount, context: Context) -> Handled[Account]:
    """Book the last amount of an account, and tell its total."""
    after = booked(account, body)
    told = Receipt(total=sum(after.amounts), receipt=context.new_id(), lucky_number=7)
    return Handled(after, (Output("account.receipt", told),), ends=True)


@handlers.register("account.leave", state=Account, body=Amount, kind=Kind.EFFECTFUL)
async def leave(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Close an account outside, too."""
    return Handled(booked(account, body), ends=True)


@handlers.register("account.remind", state=Account, body=Amount)
def remind(account: Account, body: Amount, _: Context) -> Handled[Account]:
    """Ask to be told an amount later."""
    later = Output("account.add", body, to=HERE, after=timedelta(hours=1), reminder="later")
    return Handled(account, (later,))


@pytest.fixture
def world() -> World:
    return World(handlers=handlers)


def last(sequence: int) -> Message:
    return message(sequence, kind="account.close")


def plain(number: int, kind: str = "account.add") -> Message:
    """A message without a number."""
    return replace(message(number, kind=kind), number=None, time=SENT_AT)


async def settle(worker: Services) -> None:
    """Let acknowledgements that wait for a next entry be recorded."""
    await worker.recovery.consumer.dispatcher.acknowledgements.record_session("acc-7")


async def test_when_something_new_comes_it_is_refused_by_name_and_kept(world: World) -> None:
    await take(world.east, message(0), last(1))

    refused = [await world.west.consumer.consume(one) for one in (message(2), plain(3))]

    assert [type(outcome) for outcome in refused] == [Refused, Refused]
    assert world.amounts() == [1, 2]
    (first, second) = world.entries()[2:]
    assert "has ended" in first["reason"]
    assert (first["message"]["body"], second["message"]["body"]) == (
        '{"amount":3}',
        '{"amount":4}',
    )
    # A person finds them, and the error queue has them whole.
    page = await world.east.standstills.find(limit=10)
    assert sorted(require(one.position) for one in page.standstills) == [2, 3]
    assert [report["message"]["body"] for report in world.reports()] == [
        '{"amount":3}',
        '{"amount":4}',
    ]


async def test_when_copies_come_they_are_told_from_what_is_new(world: World) -> None:
    sent = [message(0), plain(9), last(1), message(2), plain(3)]
    for one in sent:
        await world.east.consumer.consume(one)

    for worker in (world.west, world.worker("east")):
        copies = [await worker.consumer.consume(one) for one in sent]
        assert copies == [AlreadyDone()] * len(sent)
    other = await world.west.consumer.consume(message(1, amount=99))
    assert isinstance(other, Conflicting)
    assert (len(world.entries()), len(world.reports())) == (5, 2)


async def test_when_a_session_ends_its_outputs_still_go_out(world: World) -> None:
    with world.without("west"):
        await take(world.east, message(0), last(1))
    await settle(world.east)
    assert world.outputs("west") == []

    world.clock.seconds += 60
    await world.west.recovery.sweep()

    assert world.outputs("west") == world.outputs("east")
    assert len(world.outputs("east")) == 1


async def test_when_messages_wait_for_their_turn_they_are_refused_in_it() -> None:
    world = World(handlers=handlers, policy=IMPATIENT)
    early = await take(world.east, message(0), message(2), message(3))
    assert early[1:] == [Parked(), Parked()]

    await world.west.consumer.consume(last(1))

    assert world.amounts() == [1, 2]
    assert [e["status"] for e in world.entries()[-2:]] == [Status.SKIPPED] * 2
    assert [r["message"]["body"] for r in world.reports()] == ['{"amount":3}', '{"amount":4}']
    assert not world.documents("parked")


async def test_when_the_missing_number_comes_after_the_end_nothing_of_it_is_applied() -> None:
    world = World(handlers=handlers, policy=IMPATIENT)
    await take(world.east, last(0), message(2))
    assert isinstance(await world.west.consumer.consume(message(1)), Refused)

    assert world.amounts() == [1]
    # In order, and both by name.
    assert [r["message"]["body"] for r in world.reports()] == ['{"amount":2}', '{"amount":3}']
    assert not world.documents("parked")


async def test_when_a_reminder_comes_after_the_end_nobody_is_told(world: World) -> None:
    first = replace(message(0, kind="account.remind"), time=SENT_AT)
    await take(world.east, first, last(1))
    (reminder,) = [one for one in world.bus.messages("east", "in") if one.reminder]

    world.clock.seconds += 3600
    await world.west.consumer.consume(reminder)

    assert world.amounts() == [2]
    assert "cancelled" in world.entries()[-1]["reason"]
    assert world.reports() == []


async def test_when_messages_share_an_entry_the_end_is_the_last_of_them(world: World) -> None:
    sent = [message(0), message(1), last(2), message(3), message(4)]

    await asyncio.gather(*(world.east.consumer.consume(one) for one in sent))

    assert world.amounts() == [1, 2, 3]
    assert [r["message"]["body"] for r in world.reports()] == ['{"amount":4}', '{"amount":5}']


async def test_when_both_regions_take_the_last_message_it_ends_once(world: World) -> None:
    await take(world.east, message(0))

    await asyncio.gather(*(one.consumer.consume(last(1)) for one in (world.east, world.west)))
    await take(world.west, message(2))

    assert world.amounts() == [1, 2]
    assert [bool(e.get("ended")) for e in world.entries()] == [False, True, True]


@pytest.mark.parametrize("fault", PASSING_FAULTS)
async def test_when_the_ending_commit_is_in_doubt_it_ends_once(
    world: World, fault: CallFault
) -> None:
    await take(world.east, message(0))
    world.journal.fault_plan.plan("append", fault)

    try:
        await world.east.consumer.consume(last(1))
    except BaseException:  # Its delivery comes again.
        await world.worker("east").consumer.consume(last(1))
    await world.west.consumer.consume(last(1))
    await world.west.consumer.consume(message(2))

    assert world.amounts() == [1, 2]
    assert [bool(e.get("ended")) for e in world.entries()] == [False, True, True]
    assert len(set(world.outputs("east"))) == 1


async def test_when_a_claim_that_ends_is_taken_over_it_ends_once(world: World) -> None:
    goes = message(0, kind="account.leave")
    world.journal.fault_plan.plan("replace", CallFault.KILLED_BEFORE)
    with pytest.raises(ProcessKilled):
        await world.east.consumer.consume(goes)
    world.clock.seconds += 60

    await world.west.recovery.sweep()
    await take(world.west, goes, message(1))

    assert [bool(e.get("ended")) for e in world.entries()] == [True, True]
    assert world.amounts() == [1]


async def test_when_a_worker_slept_on_the_head_before_the_end_it_commits_nothing(
    world: World,
) -> None:
    await take(world.east, message(0))
    sleeper = world.worker("east")
    await sleeper.worker.read_head("acc-7")
    await take(world.west, last(1))

    assert isinstance(await sleeper.consumer.consume(message(2)), Refused)

    assert world.amounts() == [1, 2]


async def test_when_a_producer_publishes_to_an_ended_session_it_is_told(world: World) -> None:
    ingest, told = world.east.ingest, Draft("close", "account.close", b'{"amount":1}')
    await take(world.east, await ingest.take("acc-7", told))

    with pytest.raises(SessionEnded, match="has ended"):
        await ingest.take("acc-7", Draft("more", "account.add", b'{"amount":2}'))
    # What was published before is not new.
    assert (await ingest.take("acc-7", told)).number is not None


async def test_when_the_ledger_cannot_be_ended_the_session_refuses_all_the_same(
    world: World,
) -> None:
    ingest = world.east.ingest
    first = await ingest.take("acc-7", Draft("close", "account.close", b'{"amount":1}'))
    world.journal.fault_plan.plan("end_ledger", CallFault.REFUSED)

    assert isinstance(await world.east.consumer.consume(first), Processed)
    more = await ingest.take("acc-7", Draft("more", "account.add", b'{"amount":2}'))
    assert isinstance(await world.west.consumer.consume(more), Refused)


async def test_a_person_ends_a_session_once(world: World) -> None:
    await take(world.east, message(0))

    entry = await world.west.resolver.resolve("acc-7", END)
    again = await world.east.resolver.resolve("acc-7", END)

    assert (entry.position, again.position, again.is_ended) == (1, 1, True)
    assert require(again.resolution).who == "Ada"
    with pytest.raises(SessionEnded):
        await world.east.resolver.resolve("acc-7", replace(END, who="Bob"))
    set_state = ResolutionRequest(ResolutionAction.SET_STATE, "Ada", "a typo", body=b"{}")
    with pytest.raises(SessionEnded):
        await world.east.resolver.resolve("acc-7", set_state)
    assert isinstance(await world.west.consumer.consume(message(1)), Refused)
    assert world.amounts() == [1]
    # What a person erases stays ended.
    closed = ResolutionRequest(ResolutionAction.CLOSE, "Ada", "sent again elsewhere", at=2)
    await settle(world.west)
    await world.west.resolver.resolve("acc-7", closed)
    await world.west.resolver.resolve("acc-7", replace(END, action=ResolutionAction.ERASE))
    assert require(world.journal.newest("acc-7")).is_ended


async def test_when_a_person_ends_a_session_its_large_state_stays_as_it_was() -> None:
    large = Handlers()

    @large.register("account.add", state=Notes, body=Amount)
    def note(notes: Notes, body: Amount, _: Context) -> Notes:
        return Notes(text="x" * 40_000, amount=notes.amount + body.amount)

    world = World(handlers=large)
    await take(world.east, *map(message, range(3)))
    # Of so large a state an entry holds what has changed.
    assert "change" in world.entries()[-1]

    ended = await world.west.resolver.resolve("acc-7", END)

    worker = world.worker("west").worker
    head = require(await worker.read_head("acc-7"))
    assert (await worker.input_after(head)).state["amount"] == 6
    assert (head.position, head.is_ended) == (ended.position, True)


@pytest.mark.parametrize(
    ("arriving", "in_the_way"),
    [(message(2), "parked"), (message(1, kind="account.unknown"), "halted")],
)
async def test_what_waits_is_ended_before_a_person_ends_the_session(
    arriving: Message, in_the_way: str
) -> None:
    world = World(handlers=handlers, policy=IMPATIENT)
    await take(world.east, message(0), arriving)
    await settle(world.east)

    with pytest.raises((NotOpen, Unavailable), match=in_the_way):
        await world.east.resolver.resolve("acc-7", END)


async def test_the_session_of_a_saga_is_not_ended(world: World) -> None:
    with pytest.raises(NotAllowed):
        await world.east.resolver.resolve("saga:order-1", END)
