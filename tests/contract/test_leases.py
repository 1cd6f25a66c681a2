"""What a region heard, over the real SDK: ages by the store's clock, records beside the leases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.cloud import Cloud
from shared.adapters.cosmos import CosmosContainer
from shared.adapters.cosmos_leases import CosmosLeases
from shared.engine.operate.heartbeats import COMPACT, SWEEP, Heartbeats
from shared.wiring import Adapters
from tests.cloud import running_cloud, settings_of

pytestmark = pytest.mark.wire


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with running_cloud(logs=tmp_path) as cloud:
        yield cloud


async def test_a_timer_that_ran_is_heard_by_every_instance(cloud: Cloud) -> None:
    settings = settings_of(cloud)
    one, other = (Adapters.of(settings) for _ in range(2))
    try:
        heartbeats, elsewhere = (
            Heartbeats(
                CosmosLeases(CosmosContainer(adapters.account, settings.database, settings.leases)),
                "east",
                ["east", "west"],
            )
            for adapters in (one, other)
        )
        assert {age.seconds for age in (await heartbeats.ages()).values()} == {None}

        await heartbeats.note(SWEEP)
        await heartbeats.note(SWEEP)

        ages = await elsewhere.ages()
        seconds = ages[SWEEP].seconds
        assert seconds is not None
        assert 0 <= seconds < 60
        assert ages[COMPACT].is_silent
    finally:
        await one.close()
        await other.close()
