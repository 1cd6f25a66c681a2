"""Every call that publishing makes goes wrong, or is the last before its process dies.

Then the same messages are published again, or others are, or nobody comes back. Whatever follows,
no number has two contents, no number stays unsent, and each effect happens once, in order.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import combinations, islice, product

import pytest

from shared.domain.errors import LockstepError
from shared.domain.producer import Draft, ProducerOptions
from shared.engine.dispatch.deliver import PAUSE_SECONDS
from shared.engine.publish.publish import Producer
from shared.testkit.injected_faults import CALL_ERRORS, CallFault, FaultPlan, ProcessKilled
from tests.crashes import rest
from tests.sizes import IS_PROOF
from tests.world import REGIONS, World, take

type Fault = tuple[str, CallFault]

SESSION = "acc-7"
OPTIONS = ProducerOptions("bank")
STORE_CALLS = ("ledger", "pending", "save_ledger", "acknowledge")
FAULTS = list(product((*STORE_CALLS, "send.east", "send.west"), CALL_ERRORS))
# A producer that starts anew on a used session: the regions, a look at each queue, ledger, pending,
# ledger and outbox written, a send to each region, the outbox struck off.
STEPS = 9


def drafts(*amounts: int) -> list[Draft]:
    return [
        Draft(f"m-{n}", "account.add", f'{{"amount":{n},"note":"Zoë"}}'.encode()) for n in amounts
    ]


FIRST, TRIED, OTHER = drafts(1, 2, 3), drafts(4, 5), drafts(6, 7, 8)
FOLLOWING: dict[str, list[Draft]] = {"the same": TRIED, "others": OTHER, "nothing": []}


class Death(FaultPlan):
    """Kills the process at its n-th call, before or after it is applied; the dead do nothing."""

    def __init__(self, at: int, *, is_applied: bool) -> None:
        super().__init__()
        self.last = at
        self.is_applied = is_applied

    def perform[T](self, operation: str, apply: Callable[[], T]) -> T:
        self.made.append(operation)
        if len(self.made) == self.last and self.is_applied:
            apply()
        if len(self.made) >= self.last:
            raise ProcessKilled(operation)
        return apply()


async def begun(*, used: bool) -> World:
    """A world whose session was published to before, or never."""
    world = World()
    if used:
        await world.producer().publish(SESSION, FIRST, OPTIONS)
    return world


async def insist(world: World, producer: Producer, wanted: Sequence[Draft]) -> Sequence[int]:
    """Publish until it succeeds, as callers must; the numbers are returned."""
    for _ in range(5):
        try:
            published = await producer.publish(SESSION, wanted, OPTIONS)
        except LockstepError:
            world.clock.seconds += PAUSE_SECONDS
            continue
        return [m.number.sequence for m in published.messages if m.number]
    return pytest.fail("never published")


async def settled(world: World) -> World:
    """Once faults have stopped: both regions sweep, and process what is in their queues."""
    world.journal.fault_plan = world.bus.fault_plan = FaultPlan()
    await rest(world)
    for region in REGIONS:
        await take(world.worker(region), *world.bus.messages(region, "in"))
    return world


def contents(world: World, region: str) -> dict[int, set[tuple[str, bytes]]]:
    """Every content that a region was sent under each number."""
    found: dict[int, set[tuple[str, bytes]]] = {}
    for message in world.bus.messages(region, "in"):
        assert message.number is not None
        found.setdefault(message.number.sequence, set()).add((message.id, message.body))
    return found


def assert_whole(world: World, published: Sequence[Draft], case: object) -> None:
    """Both regions have exactly these, one content per number, and each took effect once."""
    expected = {n: {(draft.id, draft.body)} for n, draft in enumerate(published)}
    assert contents(world, "east") == contents(world, "west") == expected, case
    assert world.amounts(SESSION) == [int(d.id.removeprefix("m-")) for d in published], case
    assert not any(d.get("pending") for d in world.journal.partitions[SESSION].values()), case


async def bound(world: World) -> bool:
    """Whether the ledger knows the messages of the operation that was cut short."""
    stored = await world.journal.ledger(SESSION, "bank")
    return stored is not None and TRIED[0].id in {b.id for b in stored.ledger.remembered}


@pytest.mark.parametrize("used", [True, False], ids=["used", "unused"])
@pytest.mark.parametrize("following", FOLLOWING)
async def test_a_dead_producers_numbers_are_never_lost_nor_given(
    following: str, used: bool
) -> None:
    for step, is_applied in product(range(1, STEPS + 1), (False, True)):
        world = await begun(used=used)
        world.journal.fault_plan = world.bus.fault_plan = Death(step, is_applied=is_applied)
        with suppress(ProcessKilled):
            await world.producer().publish(SESSION, TRIED, OPTIONS)
        world.journal.fault_plan, world.bus.fault_plan = FaultPlan(), FaultPlan()

        was_bound = await bound(world)
        if FOLLOWING[following]:
            await insist(world, world.producer(), FOLLOWING[following])

        tried = TRIED if was_bound or following == "the same" else []
        others = OTHER if following == "others" else []
        whole = [*(FIRST if used else []), *tried, *others]
        assert_whole(await settled(world), whole, (step, is_applied))


async def test_every_call_of_a_publish_is_among_the_deaths() -> None:
    world = await begun(used=True)
    life = Death(10_000, is_applied=True)
    world.journal.fault_plan = world.bus.fault_plan = life

    await world.producer().publish(SESSION, TRIED, OPTIONS)

    assert len(life.made) == STEPS


# One pair in so many, spread over the whole list of pairs.
ONE_PAIR_IN = 1 if IS_PROOF else 5


@pytest.mark.slow
@pytest.mark.parametrize("process", ["the same process", "a new process"])
@pytest.mark.parametrize("following", FOLLOWING)
async def test_failures_one_and_two_at_a_time_lose_nothing(following: str, process: str) -> None:
    singles = [(fault,) for fault in FAULTS]
    for faults in [*singles, *islice(combinations(FAULTS, 2), 0, None, ONE_PAIR_IN)]:
        world = await begun(used=True)
        producer = world.producer()
        for call, fault in faults:
            target = world.bus if call.startswith("send") else world.journal
            target.fault_plan.plan(call, fault)
        try:
            await producer.publish(SESSION, TRIED, OPTIONS)
        except LockstepError:
            world.clock.seconds += PAUSE_SECONDS
        if process == "a new process":
            producer = world.producer()

        wanted = FOLLOWING[following]
        if wanted:
            numbers = await insist(world, producer, wanted)
            assert list(numbers) == list(range(numbers[0], numbers[0] + len(wanted))), faults

        world.journal.fault_plan = FaultPlan()
        tried = TRIED if await bound(world) else []
        others = OTHER if following == "others" else []
        assert_whole(await settled(world), [*FIRST, *tried, *others], faults)


async def test_the_numbers_are_the_same_on_every_try() -> None:
    for fault in FAULTS:
        world = await begun(used=True)
        world.journal.fault_plan.plan(*fault)
        world.bus.fault_plan.plan(*fault)
        world.bus.fault_plan.plan("send.west", CallFault.LOST)
        producer = world.producer()
        for _ in range(4):
            assert list(await insist(world, producer, TRIED)) == [3, 4], fault


async def test_the_bytes_stored_first_are_the_bytes_sent() -> None:
    world = await begun(used=True)
    early, late = (
        [Draft(d.id, d.type, d.body, f"{year}-01-01T00:00:00") for d in TRIED]
        for year in (2013, 2014)
    )
    with world.without(*REGIONS), pytest.raises(LockstepError):
        await world.producer().publish(SESSION, early, OPTIONS)

    await world.producer().publish(SESSION, late, OPTIONS)

    ids = {d.id for d in TRIED}
    for region in REGIONS:
        times = {m.time for m in world.bus.messages(region, "in") if m.id in ids}
        assert times == {"2013-01-01T00:00:00"}
