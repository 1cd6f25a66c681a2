"""The journal's write region is lost: nothing is written, until another one takes the writes."""

import asyncio

import pytest

from local.cloud import Cloud
from local.faults import Action, Fault
from shared.domain.errors import OutcomeUnknown, Unavailable
from shared.domain.journal import Entry
from shared.ports import WriteResult
from shared.wiring import Adapters
from tests.entries import step

pytestmark = pytest.mark.wire

SESSION = "acc-7"
SECONDS_MAX = 60.0
SETTINGS = {"LOCKSTEP_COSMOS_LOCATIONS": "east,west,north"}


async def test_a_client_finds_the_new_write_region_though_the_old_one_is_silent(
    cloud: Cloud, adapters: Adapters
) -> None:
    adapters.account.reconnect_seconds = 1.0
    first = step(None, SESSION)
    assert await adapters.journal.append(first) is WriteResult.CREATED
    cloud.faults.arm(Fault("cosmos", Action.DOWN, region="east"))
    cloud.cosmos.move_write_region("west")

    second = step(first, SESSION)
    async with asyncio.timeout(SECONDS_MAX):
        while not await stands(adapters, second):  # noqa: ASYNC110 - it is the store we wait for
            await asyncio.sleep(0.1)

    # The acknowledged entry of the dead region is there too.
    assert await adapters.journal.entry(SESSION, 0) == first


async def stands(adapters: Adapters, entry: Entry) -> bool:
    """Whether the entry is in the journal, after another try."""
    try:
        await adapters.journal.append(entry)
        return await adapters.journal.entry(SESSION, 1) == entry
    except (OutcomeUnknown, Unavailable):
        return False
