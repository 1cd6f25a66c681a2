"""Each beacon of a region runs what its sagas need, over durabletask's own client and worker."""

from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationStatus, TaskHubGrpcClient
from durabletask.worker import TaskHubGrpcWorker

from functions.triggers.saga_instances import PROOF_ACTIVITY, begin_instances, prove_sagas
from local.durable.backend import DurableBackend
from shared.engine.sagas.sagas import Sagas
from shared.storage.journal import beacon_of
from tests.world import World

pytestmark = pytest.mark.wire


@pytest.fixture
def backend() -> Iterator[DurableBackend]:
    backend = DurableBackend("east")
    backend.start()
    yield backend
    backend.stop()


async def see(backend: DurableBackend, region: str) -> None:
    """What the feed of east does when it sees the beacon of a region."""
    east = World().east
    async with AsyncTaskHubGrpcClient(host_address=backend.address) as hub:
        await begin_instances(east, Sagas(east.consumer), hub, [beacon_of(region)])


async def test_each_beacon_of_the_region_runs_one_instance_again_and_no_other_one_does(
    backend: DurableBackend,
) -> None:
    noted = []
    orchestrator: Any = prove_sagas

    def note(_: Any, work: Any) -> None:
        noted.append(work)

    note.__name__ = PROOF_ACTIVITY
    with (
        TaskHubGrpcWorker(host_address=backend.address) as worker,
        TaskHubGrpcClient(host_address=backend.address) as client,
    ):
        worker.add_orchestrator(orchestrator)
        worker.add_activity(note)
        # Nobody runs the first one yet: the second beacon finds it, and starts none beside it.
        await see(backend, "east")
        await see(backend, "east")
        worker.start()  # type: ignore[no-untyped-call]
        for times in (1, 2):
            ended = client.wait_for_orchestration_completion("beacon-east", timeout=60)
            assert ended is not None
            assert ended.runtime_status is OrchestrationStatus.COMPLETED
            assert len(noted) == times
            await see(backend, "east")
        await see(backend, "west")

        assert [one.instance_id for one in client.get_all_orchestration_states()] == ["beacon-east"]


async def test_when_the_task_hub_is_out_of_reach_the_feed_shows_the_beacon_again(
    backend: DurableBackend,
) -> None:
    backend.stop()

    with pytest.raises(grpc.aio.AioRpcError):
        await see(backend, "east")
