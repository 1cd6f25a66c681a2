"""A message's outputs take longer than one answer of the broker may, through the real SDKs."""

import asyncio
from collections import Counter
from dataclasses import replace

import pytest

from local.cloud import Cloud
from local.faults import Action, Fault
from local.testing.patience import Patience
from shared.domain.handler import Handlers
from shared.engine.consume.outcomes import Processed
from shared.wiring import Adapters, connect
from tests.cloud import settings_of
from tests.sized_outputs import handlers, writing
from tests.world import REGIONS
from tests.world import handlers as business

pytestmark = [pytest.mark.wire, pytest.mark.slow]

QUEUE = "lockstep-out"
SECONDS_MAX = 600.0


@pytest.mark.parametrize(
    ("outputs", "seconds"),
    [(330, 0.8), pytest.param(5_000, 0.24, marks=pytest.mark.proof)],
    ids=["15 batches of which each is slow", "50 MB over a link of 1 MB/s"],
)
async def test_each_is_sent_once_to_each_region_and_the_session_goes_on(
    cloud: Cloud, adapters: Adapters, outputs: int, seconds: float
) -> None:
    workers = [
        connect(settings_of(cloud, region), Handlers.joined([business, handlers]), adapters)
        for region in REGIONS
    ]
    for region in REGIONS:
        # The broker answers so much later: as if the batch had taken so long on its way.
        cloud.faults.arm(Fault(f"servicebus.{region}", Action.DELAY, "send", seconds=seconds))

    writer = f"writer-{outputs}"
    before = len(cloud.contents("east", QUEUE))
    first, second = (
        replace(one, session=writer) for one in (writing([10_000] * outputs), writing([1], 1))
    )
    assert isinstance(await workers[0].consumer.consume(first), Processed)
    patience = Patience(SECONDS_MAX)
    while (left := await adapters.journal.pending(writer, REGIONS)) and not patience.is_over():
        # As the change feed does, which shows each change.
        await asyncio.gather(*(worker.recovery.recover(left) for worker in workers))
    assert isinstance(await workers[0].consumer.consume(second), Processed)

    for region in REGIONS:
        copies = Counter(str(one["id"]) for one in cloud.contents(region, QUEUE))
        assert len(copies) == before + outputs + 1
        assert set(copies.values()) == {1}
