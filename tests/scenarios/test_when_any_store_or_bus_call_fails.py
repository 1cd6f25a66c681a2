"""Every call that consuming makes goes wrong in every way, and so do pairs of them."""

from collections.abc import Sequence
from itertools import combinations, islice, product

import pytest

from shared.domain.errors import LockstepError
from shared.domain.message import Message
from shared.testkit.injected_faults import CALL_ERRORS, CallFault
from shared.testkit.intercepted import CALLS
from tests.crashes import sent
from tests.sizes import IS_PROOF
from tests.world import LAG_SECONDS, REGIONS, World, message

pytestmark = pytest.mark.slow


type Fault = tuple[str, CallFault, int]

BILLS = [message(n, kind="account.bill") for n in range(3)]
# Out of order, so that the last is parked and drained; and with a fault that is skipped.
GAPPED = [BILLS[0], BILLS[2], BILLS[1]]
# The first comes last, so that two are parked and drained in one entry.
FOLDED = [BILLS[1], BILLS[2], BILLS[0]]
FAULTY = [BILLS[0], message(1, kind="account.hint"), BILLS[2]]

BUS_CALLS = ("send.east", "send.west")
PRODUCER_CALLS = {"add_pending", "key", "ledger", "save_ledger", "regions", "save_regions"}
BACKGROUND_CALLS = {"has_work", "sessions", "oldest_entries", "milestone", "compact"}
OPERATOR_CALLS = {"signs", "first_parked", "close"}
CLAIM_CALLS = {"stored_entry", "replace"}
STAGING_CALLS = {"stage_part", "staged"}
ARRIVAL_CALLS = {"marker"}
EVICTION_CALLS = {"cursor"}
PAGE_CALLS = {"listed", "recent_entries", "waiting_seconds"}
REPETITION_CALLS = {"repetition", "record_repetition", "end_repetition"}
BLOCKED_CALLS = {"blocked", "blocked_queues", "decide"}
STORE_CALLS = (
    "head",
    "entry",
    "processed",
    "append",
    "parked",
    "parked_run",
    "pending",
    "acknowledge",
    "leave_pending",
)
FAULTS = [*product(STORE_CALLS + BUS_CALLS, CALL_ERRORS, range(3))]
# One pair in so many, spread over the whole list of pairs.
ONE_PAIR_IN = 1 if IS_PROOF else 23


def test_no_call_of_the_journal_is_forgotten_here() -> None:
    elsewhere = PRODUCER_CALLS | BACKGROUND_CALLS | CLAIM_CALLS | STAGING_CALLS | ARRIVAL_CALLS
    elsewhere |= OPERATOR_CALLS | BLOCKED_CALLS | EVICTION_CALLS | PAGE_CALLS | REPETITION_CALLS
    assert {*STORE_CALLS} | elsewhere == CALLS


async def consume_until_settled(world: World, arriving: Message) -> None:
    """Redeliver to a new worker, east and west in turn, until one settles."""
    for attempt in range(4):
        region = world.worker(("east", "west")[attempt % 2])
        try:
            await region.consumer.consume(arriving)
        except LockstepError:
            world.clock.seconds += 3
            continue
        return
    pytest.fail(f"{arriving} was never settled")


async def run(arrivals: Sequence[Message], *faults: Fault) -> World:
    """Process what arrives, arming each fault before the arrival it strikes; then sweep."""
    world = World()
    for index, arriving in enumerate(arrivals):
        for call, fault, strikes_at in faults:
            if strikes_at == index:
                fault_plan = world.bus.fault_plan if call in BUS_CALLS else world.journal.fault_plan
                fault_plan.plan(call, fault)
        await consume_until_settled(world, arriving)
        world.clock.seconds += 3
    world.journal.fault_plan.planned.clear()
    world.bus.fault_plan.planned.clear()
    for _ in range(2):
        world.clock.seconds += LAG_SECONDS
        await world.worker("east").recovery.sweep()
        await world.worker("west").recovery.sweep()
    return world


@pytest.mark.parametrize(
    "arrivals", [BILLS, GAPPED, FOLDED, FAULTY], ids=["in turn", "gapped", "folded", "faulty"]
)
async def test_each_effect_once_and_each_output_the_same_in_both_regions(
    arrivals: Sequence[Message],
) -> None:
    quiet = await run(arrivals)
    expected = {queue: sent(quiet, "east", queue) for queue in ("out", "errors")}
    assert len(expected["out"]) + len(expected["errors"]) == len(arrivals)

    singles = [(fault,) for fault in FAULTS]
    for faults in [*singles, *islice(combinations(FAULTS, 2), 0, None, ONE_PAIR_IN)]:
        world = await run(arrivals, *faults)

        assert world.amounts() == quiet.amounts(), faults
        for region, queue in product(("east", "west"), expected):
            assert sent(world, region, queue) == expected[queue], (region, queue, faults)
        assert await world.journal.pending("acc-7", REGIONS) == [], faults
