"""A handler takes longer than two leases: its claim is renewed, and everybody else waits."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shared.domain.errors import Unavailable
from shared.domain.message import Message
from shared.engine.build import Services
from shared.engine.consume.outcomes import (
    AlreadyDone,
    Claimed,
    Conflicting,
    Outcome,
    Parked,
    Processed,
)
from shared.ports import StoredEntry
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from shared.testkit.memory import MemoryJournal
from tests.business import LEASE_SECONDS, OrderedClock, Outside, payment, worker_with, world_of
from tests.world import GAP_SECONDS, REGIONS, World, message

PAY = payment(0)
SLOW_SECONDS = 3.5 * LEASE_SECONDS


def slow(seconds: float = SLOW_SECONDS) -> tuple[World, Outside]:
    """A world in which the outside takes its time."""
    outside = Outside()
    world = world_of(outside, OrderedClock())

    async def take_long() -> None:
        await world.clock.sleep(seconds)

    outside.before = take_long
    return world, outside


async def after(world: World, seconds: float, worker: Services, arriving: Message) -> Outcome:
    """Consume a message that comes later."""
    await world.clock.sleep(seconds)
    return await worker.consumer.consume(arriving)


async def outputs_of_a_quick_one(*arrivals: Message) -> Sequence[tuple[str, bytes]]:
    """What is sent when the outside answers at once."""
    quick = world_of(Outside())
    for arriving in arrivals:
        await quick.east.consumer.consume(arriving)
    return quick.outputs("east")


async def test_whose_place_beside_it_another_producer_has_goes_back_to_its_queue() -> None:
    world, _ = slow()
    ruling, fenced = message(1, amount=201, level=1), message(1, amount=101)

    _, parked, given_back = await asyncio.gather(
        world.east.consumer.consume(PAY),
        after(world, 15, world.west, ruling),
        after(world, 30, world.west, fenced),
        return_exceptions=True,
    )

    assert parked == Parked()
    assert isinstance(given_back, Unavailable)
    assert world.amounts() == [1, 201]
    assert isinstance(await world.west.consumer.consume(fenced), Conflicting)


async def test_it_keeps_its_claim_and_the_other_regions_copy_waits_and_is_settled() -> None:
    world, outside = slow()

    owner, copy = await asyncio.gather(
        world.east.consumer.consume(PAY), after(world, 15, world.west, PAY)
    )

    assert isinstance(owner, Processed)
    assert copy == Claimed()
    assert len(outside.asked) == 1
    for region in REGIONS:
        assert world.outputs(region) == await outputs_of_a_quick_one(PAY)


async def test_a_copy_that_comes_at_any_time_never_takes_over() -> None:
    world, outside = slow()
    workers = [world.worker(REGIONS[n % 2]) for n in range(24)]

    outcomes = await asyncio.gather(
        world.east.consumer.consume(PAY),
        *(after(world, 5.0 * n, worker, PAY) for n, worker in enumerate(workers, start=1)),
    )

    assert isinstance(outcomes[0], Processed)
    assert {type(outcome) for outcome in outcomes[1:]} == {Claimed, AlreadyDone}
    assert len(outside.asked) == 1
    assert world.outputs("east") == await outputs_of_a_quick_one(PAY)


async def test_a_copy_waits_inside_its_invocation_and_not_for_ever() -> None:
    world, _ = slow()

    async def how_long() -> float:
        await world.clock.sleep(1)
        began = world.clock.now()
        await world.west.consumer.consume(PAY)
        return world.clock.now() - began

    _, waited = await asyncio.gather(world.east.consumer.consume(PAY), how_long())

    assert GAP_SECONDS <= waited < GAP_SECONDS + 2


async def test_what_comes_behind_it_is_kept_beside_the_claim_and_drained_in_order() -> None:
    world, _ = slow()
    bills = [message(n, kind="account.bill") for n in (1, 2, 3)]

    outcomes = await asyncio.gather(
        world.east.consumer.consume(PAY),
        after(world, 3, world.west, bills[1]),
        after(world, 2, world.west, bills[0]),
        after(world, 1, world.west, bills[2]),
    )

    assert [type(outcome) for outcome in outcomes] == [Processed, Parked, Parked, Parked]
    assert world.amounts() == [1, 2, 3, 4]
    assert "parked" not in world.entries()[-1]
    for region in REGIONS:
        assert world.outputs(region) == await outputs_of_a_quick_one(PAY, *bills)


async def test_many_messages_that_are_kept_beside_it_do_not_wear_its_lease_out() -> None:
    world, outside = slow()
    bills = [message(n, kind="account.bill") for n in range(1, 13)]

    outcomes = await asyncio.gather(
        world.east.consumer.consume(PAY),
        *(after(world, 5.0 * n, world.west, bill) for n, bill in enumerate(bills, start=1)),
    )

    assert isinstance(outcomes[0], Processed)
    assert len(outside.asked) == 1
    assert world.amounts() == list(range(1, 14))


async def test_what_comes_behind_a_quick_one_only_waits() -> None:
    world, _ = slow(GAP_SECONDS / 2)

    _, outcome = await asyncio.gather(
        world.east.consumer.consume(PAY), after(world, 1, world.west, message(1))
    )

    assert isinstance(outcome, Processed)
    assert [entry["status"] for entry in world.entries()] == ["completed", "completed"]
    assert not any(entry.get("from_parked") for entry in world.entries())


async def test_the_sweep_leaves_it_alone() -> None:
    world, outside = slow()

    async def sweep_often() -> None:
        for _ in range(12):
            await world.clock.sleep(7)
            await world.west.recovery.sweep()

    await asyncio.gather(world.east.consumer.consume(PAY), sweep_often())

    assert len(outside.asked) == 1
    assert world.amounts() == [1]


@pytest.mark.parametrize("fault", CALL_ERRORS)
@pytest.mark.parametrize("call", ["stored_entry", "replace"])
async def test_one_renewal_that_goes_wrong_does_not_lose_the_claim(
    call: str, fault: CallFault
) -> None:
    world, outside = slow()
    world.journal.fault_plan.plan(call, fault)

    await asyncio.gather(
        world.east.consumer.consume(PAY), after(world, 2 * LEASE_SECONDS, world.west, PAY)
    )

    assert len(outside.asked) == 1
    assert world.outputs("west") == await outputs_of_a_quick_one(PAY)


class Lingering(MemoryJournal):
    """A journal whose first look at a claim does not end at once when it is cancelled."""

    asked: asyncio.Event
    answered: asyncio.Event

    async def stored_entry(self, session: str, position: int) -> StoredEntry | None:
        if not self.asked.is_set():
            self.asked.set()
            try:
                await asyncio.Event().wait()
            finally:
                await self.answered.wait()
        return await super().stored_entry(session, position)


async def test_a_cancelled_worker_does_not_go_on_because_a_renewal_ends_late() -> None:
    outside = Outside()
    world = world_of(outside)
    journal = world.journal = Lingering(world.clock)
    journal.asked, journal.answered = asyncio.Event(), asyncio.Event()

    async def until_renewed() -> None:
        await journal.asked.wait()

    outside.after = until_renewed
    working = asyncio.create_task(worker_with(world, "east").consumer.consume(PAY))
    await journal.asked.wait()
    for _ in range(10):
        await asyncio.sleep(0)

    working.cancel()
    await asyncio.sleep(0)
    journal.answered.set()

    with pytest.raises(asyncio.CancelledError):
        await working
    assert world.entries()[0]["status"] == "working"


async def test_other_sessions_flow_meanwhile() -> None:
    world, _ = slow()
    other = replace(message(0), session="acc-8")

    _, began, done = await asyncio.gather(
        world.east.consumer.consume(PAY),
        after(world, 1, world.east, other),
        after(world, 1, world.west, message(1, session="acc-8")),
    )

    assert isinstance(began, Processed)
    assert isinstance(done, Processed)


async def test_what_does_not_fit_beside_a_claim_waits_until_it_ends() -> None:
    world, _ = slow(GAP_SECONDS + 3)
    note = ("ü" * 240_000).encode()
    claimed = replace(PAY, body=b'{"amount":1,"note":"' + note + b'"}')
    second = replace(payment(1), body=b'{"amount":2,"note":"' + note + b'"}')

    outcomes = await asyncio.gather(
        world.east.consumer.consume(claimed), after(world, 1, world.west, second)
    )

    assert {type(outcome) for outcome in outcomes} == {Processed}
    assert world.amounts() == [1, 2]
