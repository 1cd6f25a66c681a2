"""Two workers meet at a message, in every interleaving: one effect, one set of outputs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

import pytest

from shared.domain.errors import Unavailable
from shared.domain.handler import Context, Handlers
from shared.domain.journal import Entry, Status
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.consume.outcomes import AlreadyDone, Outcome, Parked, Processed
from shared.ports import NOTHING_CARRIED, Carried, WriteResult
from shared.testkit.injected_faults import CallFault
from shared.testkit.intercepted import InterceptedJournal
from tests.business import LEASE_OVER, BusinessWorld, dies, healthy, payment, swept, worker_with
from tests.crashes import sent
from tests.schedules import Schedule, race
from tests.sizes import IS_PROOF
from tests.world import POLICY, REGIONS, Account, Amount, World, add, message, take

# When both regions take a message at once, in every interleaving, it has one effect.

# The first calls of both are interleaved in every way; one that has ended lets the other go.
STEPS = 11 if IS_PROOF else 9


@pytest.mark.slow
@pytest.mark.parametrize("before", [0, 1], ids=["the first message ever", "a later one"])
async def test_every_schedule_gives_one_effect_and_the_same_outputs(before: int) -> None:
    bill = message(before, kind="account.bill")
    bodies = set()
    for schedule in product((0, 1), repeat=STEPS):
        world = World()
        await take(world.east, *map(message, range(before)))

        outcomes = await race(world, schedule, [bill], [bill])

        assert {type(outcome) for outcome in outcomes} == {AlreadyDone, Processed}
        assert world.amounts() == [*range(1, before + 2)]
        assert len(world.entries()) == before + 1
        assert len(set(world.outputs("east"))) == len(set(world.outputs("west"))) == 1
        bodies |= set(world.outputs("east")) | set(world.outputs("west"))

    assert len(bodies) == 1


@pytest.mark.slow
async def test_two_messages_of_one_session_are_applied_in_order_by_any_two_workers() -> None:
    bills = [message(n, kind="account.bill") for n in range(2)]
    for schedule in product((0, 1), repeat=STEPS):
        world = World()

        await race(world, schedule, bills, bills)

        assert world.amounts() == [1, 2]
        assert [entry["id"] for entry in world.entries()] == ["000000000000", "000000000001"]
        for region in ("east", "west"):
            assert len(set(world.outputs(region))) == 2


# When two workers meet at a claim, in every interleaving, the outside is called once.

# The calls that matter are the first ones: claim, read, end, and what the other does meanwhile.
CLAIM_STEPS = 7
SCHEDULES: Sequence[Schedule] = list(product((0, 1), repeat=CLAIM_STEPS))

PAY = payment(0)
BILL = message(1, kind="account.bill")
TIME = "2026-05-28T20:26:40Z"


def unnumbered(arriving: Message) -> Message:
    """The message as a sender without numbers sends it."""
    return replace(arriving, number=None, time=TIME)


def assert_one_effect(
    world: BusinessWorld, quiet: World, schedule: Schedule, outcomes: Sequence[Outcome] = ()
) -> None:
    """The outside was asked once, and effects and outputs are those of the quiet world."""
    assert sum(isinstance(outcome, Processed) for outcome in outcomes) <= 1, schedule
    assert len(world.outside.asked) == 1, schedule
    assert world.amounts() == quiet.amounts(), schedule
    for region in REGIONS:
        assert sent(world, region) == quiet.outputs(region) != [], (region, schedule)


@pytest.mark.parametrize("is_dead", [False, True], ids=["alone", "after a dead owner"])
@pytest.mark.parametrize("form", [lambda m: m, unnumbered], ids=["numbered", "un-numbered"])
async def test_both_have_one_message(form: Callable[[Message], Message], *, is_dead: bool) -> None:
    quiet = await healthy(form(PAY))
    for schedule in SCHEDULES:
        world = BusinessWorld()
        if is_dead:
            await dies(world, form(PAY), "append", CallFault.KILLED_AFTER)
            world.clock.seconds += LEASE_OVER

        outcomes = await race(world, schedule, [form(PAY)], [form(PAY)])

        assert any(isinstance(outcome, Processed) for outcome in outcomes), schedule
        assert_one_effect(world, quiet, schedule, outcomes)


@pytest.mark.parametrize("arrivals", [([PAY], [BILL]), ([BILL], [PAY])], ids=["east", "west"])
async def test_one_has_the_next_pure_message(arrivals: tuple[list[Message], list[Message]]) -> None:
    quiet = await healthy(PAY, BILL)
    for schedule in SCHEDULES:
        world = BusinessWorld()

        await race(world, schedule, *arrivals)
        await swept(world)

        assert_one_effect(world, quiet, schedule)
        assert "parked" not in world.entries()[-1], schedule


async def test_both_have_both() -> None:
    quiet = await healthy(PAY, BILL)
    for schedule in SCHEDULES:
        world = BusinessWorld()

        await race(world, schedule, [PAY, BILL], [PAY, BILL])

        assert_one_effect(world, quiet, schedule)


async def test_each_has_an_unnumbered_one_and_neither_is_lost() -> None:
    first, second = unnumbered(PAY), unnumbered(BILL)
    keys: set[str] = set()
    for schedule in SCHEDULES:
        world = BusinessWorld()

        await race(world, schedule, [first], [second])
        await swept(world)

        assert sorted(world.amounts()) == [1, 2], schedule
        assert len(sent(world, "east")) == 2, schedule
        assert sent(world, "east") == sent(world, "west"), schedule
        keys |= world.outside.keys[1]
        assert "parked" not in world.entries()[-1], schedule
    assert len(keys) == 1


# When a message keeps losing its race, it is parked, or waits in its queue.

RACES_MAX = POLICY.waits.races_max


class Contended(InterceptedJournal):
    """The journal of a worker before whose appends another worker's message is always quicker."""

    def __init__(self, world: World, *statuses: Status) -> None:
        super().__init__(world.journal)
        self.world = world
        self.statuses = statuses
        self.rivals = 0

    async def append(self, entry: Entry, carried: Carried = NOTHING_CARRIED) -> WriteResult:
        if entry.status in self.statuses:
            rival = message(self.rivals, 1_000 + self.rivals, group="rival")
            self.rivals += 1
            await self.world.west.consumer.consume(rival)
        return await super().append(entry, carried)


def contended(*statuses: Status) -> tuple[World, Services, list[int]]:
    """A world with a worker that keeps losing races, and the runs of its handler."""
    runs: list[int] = []
    counted = Handlers()

    @counted.register("account.add", state=Account, body=Amount)
    def count(account: Account, body: Amount, context: Context) -> Account:
        if body.amount < 1_000:
            runs.append(body.amount)
        return add(account, body, context)

    world = World(handlers=counted)
    return world, worker_with(world, "east", journal=Contended(world, *statuses)), runs


async def test_it_is_parked_and_drained_by_whoever_is_quicker() -> None:
    world, worker, runs = contended(Status.COMPLETED)

    assert await worker.consumer.consume(message(0)) == Parked()

    assert len(runs) <= 3 * RACES_MAX
    assert world.amounts().count(1) == 1
    assert "parked" not in world.entries()[-1]


async def test_where_parking_loses_too_it_waits_in_its_queue() -> None:
    world, worker, runs = contended(Status.COMPLETED, Status.PARKED)

    with pytest.raises(Unavailable, match="keep being first"):
        await worker.consumer.consume(message(0))

    assert len(runs) <= RACES_MAX
    await world.worker("east").consumer.consume(message(0))
    assert world.amounts().count(1) == 1
