"""A batch of one session: one entry for all that succeed, and nothing is lost of the others."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.domain.handler import Context, Handlers
from shared.domain.journal import Status
from shared.domain.message import Message
from shared.engine.consume.outcomes import Faulted, Outcome
from shared.testkit.regions import consume_together
from tests.sized_outputs import WRITER, writing
from tests.sized_outputs import handlers as letter_handlers
from tests.world import IMPATIENT, SKIP, Account, Amount, World, handlers, message, take

TEN = [message(n, kind="account.bill") for n in range(10)]


@pytest.fixture
def world() -> World:
    """Two regions that do not wait for what is missing."""
    return World(policy=IMPATIENT)


def poisoned(at: int) -> list[Message]:
    """The batch with a message that fails at one place."""
    return [*TEN[:at], message(at, kind="account.burn"), *TEN[at + 1 :]]


def names(outcomes: Sequence[Outcome]) -> list[str]:
    """What became of each message."""
    return [type(outcome).__name__ for outcome in outcomes]


def messages_of(world: World) -> list[int]:
    """The number of messages of each entry."""
    return [len(entry["identities"]) for entry in world.entries()]


async def assert_all_done_as_alone(world: World, messages: Sequence[Message] = TEN) -> None:
    """Effects and outputs are those of these messages when they come one by one."""
    alone = World(policy=IMPATIENT)
    await take(alone.east, *messages)
    assert world.amounts() == alone.amounts()
    assert world.outputs("east") == world.outputs("west") == alone.outputs("east")
    numbers = [m.number for m in alone.bus.messages("east", "out")]
    assert [m.number for m in world.bus.messages("east", "out")] == numbers


async def test_ten_messages_are_one_entry_and_one_write_with_the_same_outputs(world: World) -> None:
    outcomes = await consume_together(world.east, TEN)

    assert names(outcomes) == ["Processed"] * 10
    assert messages_of(world) == [10]
    assert world.journal.fault_plan.calls["append"] == 1
    assert world.amounts() == list(range(1, 11))
    await assert_all_done_as_alone(world)


@pytest.mark.parametrize("at", [0, 5, 9], ids=["first", "in the middle", "last"])
async def test_a_poison_commits_what_came_before_and_parks_the_rest(world: World, at: int) -> None:
    outcomes = await consume_together(world.east, poisoned(at))

    assert names(outcomes) == ["Processed"] * at + ["Faulted"] + ["Parked"] * (9 - at)
    assert messages_of(world) == [at] * bool(at) + [1] * (10 - at)
    assert world.amounts() == list(range(1, at + 1))
    await assert_all_done_as_alone(world, poisoned(at))

    await world.east.resolver.resolve("acc-7", SKIP)

    assert world.amounts() == [n + 1 for n in range(10) if n != at]


async def test_the_only_message_before_a_poison_is_run_once() -> None:
    ran: list[int] = []
    counting = Handlers({**handlers.by_type})

    @counting.register("account.count", state=Account, body=Amount)
    def count(account: Account, body: Amount, _: Context) -> Account:
        ran.append(body.amount)
        return Account(amounts=[*account.amounts, body.amount])

    world = World(handlers=counting, policy=IMPATIENT)

    outcomes = await consume_together(
        world.east, [message(0, kind="account.count"), message(1, kind="account.burn")]
    )

    assert names(outcomes) == ["Processed", "Faulted"]
    assert ran == world.amounts() == [1]


OTHER = replace(message(2, kind="account.bill"), id="other", body=b'{"amount":99}')
COPIES = [*TEN[:4], TEN[1], TEN[3], *TEN[4:], TEN[9]]


@pytest.mark.parametrize(
    ("batch", "others"),
    [
        (TEN[::-1], {}),
        (COPIES, {4: "AlreadyDone", 5: "AlreadyDone", 12: "AlreadyDone"}),
        ([*TEN[:4], OTHER, *TEN[4:]], {4: "Conflicting"}),
    ],
    ids=["in reverse", "with copies", "with another message under a number"],
)
async def test_a_batch_is_put_in_order_and_what_is_not_its_own_is_found(
    world: World, batch: list[Message], others: dict[int, str]
) -> None:
    outcomes = await consume_together(world.east, batch)

    assert {n: one for n, one in enumerate(names(outcomes)) if one != "Processed"} == others
    await assert_all_done_as_alone(world)


async def test_a_gap_inside_a_batch_parks_what_follows_it(world: World) -> None:
    outcomes = await consume_together(world.east, [*TEN[:3], *TEN[4:]])

    assert names(outcomes) == ["Processed"] * 3 + ["Parked"] * 6
    assert world.amounts() == [1, 2, 3]
    await consume_together(world.east, [TEN[3]])
    await assert_all_done_as_alone(world)


async def test_a_hundred_and_fifty_messages_are_two_entries(world: World) -> None:
    await consume_together(world.east, [message(n) for n in range(150)])

    assert messages_of(world) == [100, 50]
    assert world.amounts() == list(range(1, 151))


async def test_outputs_beyond_an_entry_split_the_batch_where_they_no_longer_fit() -> None:
    world = World(handlers=letter_handlers, policy=IMPATIENT)
    batch = [writing([150_000], n) for n in range(4)] + [writing([600_000], 4), writing([1], 5)]

    outcomes = await consume_together(world.east, batch)

    assert names(outcomes) == ["Processed"] * 6
    assert [len(entry["identities"]) for entry in world.entries(WRITER)] == [2, 2, 1, 1]
    bodies = [m.body for m in world.bus.messages("east", "out")]
    assert [len(b) // 10_000 for b in bodies] == [15, 15, 15, 15, 60, 0]
    assert bodies == [m.body for m in world.bus.messages("west", "out")]


async def test_a_message_that_makes_the_state_too_large_does_not_take_the_others_with_it() -> None:
    world = World(handlers=letter_handlers, policy=IMPATIENT)
    batch = [writing([1], 0), writing([2], 1), writing([3], 2, remember=3_000_000)]

    outcomes = await consume_together(world.east, batch)

    assert names(outcomes) == ["Processed", "Processed", "Faulted"]
    assert isinstance(outcomes[2], Faulted)
    assert outcomes[2].entry.status is Status.FAULTED
    assert len(world.bus.messages("east", "out")) == 2


async def test_a_fault_that_is_skipped_lets_the_rest_of_the_batch_follow(world: World) -> None:
    batch = [*TEN[:4], message(4, kind="account.hint"), *TEN[5:]]

    outcomes = await consume_together(world.east, batch)

    assert names(outcomes) == ["Processed"] * 4 + ["Faulted"] + ["Processed"] * 5
    assert messages_of(world) == [4, 1, 5]
    assert world.amounts() == [1, 2, 3, 4, 6, 7, 8, 9, 10]
