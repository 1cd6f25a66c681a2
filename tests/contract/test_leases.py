"""What a region heard, over the real SDK: ages by the store's clock, records beside the leases."""

import pytest

from local.cloud import Cloud
from shared.adapters.cosmos import CosmosContainer
from shared.adapters.cosmos_leases import CosmosLeases
from shared.engine.operate.heartbeats import COMPACT, SWEEP, Heartbeats
from shared.settings import Settings
from shared.wiring import Adapters
from tests.cloud import opened_adapters, settings_of

pytestmark = pytest.mark.wire


def heartbeats_over(adapters: Adapters, settings: Settings) -> Heartbeats:
    container = CosmosContainer(adapters.account, settings.database, settings.leases)
    return Heartbeats(CosmosLeases(container), "east", ["east", "west"])


async def test_a_timer_that_ran_is_heard_by_every_instance(
    cloud: Cloud, adapters: Adapters
) -> None:
    settings = settings_of(cloud)
    heartbeats = heartbeats_over(adapters, settings)
    assert {age.seconds for age in (await heartbeats.ages()).values()} == {None}

    await heartbeats.note(SWEEP)
    await heartbeats.note(SWEEP)

    async with opened_adapters(cloud) as other:
        ages = await heartbeats_over(other, settings).ages()
    seconds = ages[SWEEP].seconds
    assert seconds is not None
    assert 0 <= seconds < 60
    assert ages[COMPACT].is_silent
