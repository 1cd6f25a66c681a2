"""Finished sagas leave their region's task hub, over durabletask's own client."""

import logging
from collections.abc import Iterator
from datetime import timedelta

import pytest
from durabletask.client import AsyncTaskHubGrpcClient, TaskHubGrpcClient

from functions.triggers.saga_instances import purge_instances
from local.durable.backend import DurableBackend
from tests.wire.durable_by_hand import output_of, worker

pytestmark = pytest.mark.wire


@pytest.fixture
def backend() -> Iterator[DurableBackend]:
    backend = DurableBackend("east")
    backend.start()
    yield backend
    backend.stop()


async def test_what_is_finished_and_old_goes_and_what_runs_stays(
    backend: DurableBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with TaskHubGrpcClient(host_address=backend.address) as client, worker(backend) as hand:
        done = client.schedule_new_orchestration("saga")
        hand.finish(hand.next(), "done")
        assert output_of(client, done) == "done"
        running = client.schedule_new_orchestration("saga")
        hand.schedule(hand.next(), "pay")
        async with AsyncTaskHubGrpcClient(host_address=backend.address) as hub:
            await purge_instances(hub, timedelta(days=7))
            assert client.get_orchestration_state(done) is not None

            with caplog.at_level(logging.INFO, "lockstep.sagas"):
                await purge_instances(hub, timedelta(seconds=-1))

        assert client.get_orchestration_state(done) is None
        assert client.get_orchestration_state(running) is not None
        assert "1 finished sagas left the task hub" in caplog.text


async def test_when_the_task_hub_is_out_of_reach_finished_sagas_stay(
    backend: DurableBackend, caplog: pytest.LogCaptureFixture
) -> None:
    backend.stop()
    async with AsyncTaskHubGrpcClient(host_address=backend.address) as hub:
        with caplog.at_level(logging.WARNING, "lockstep.sagas"):
            await purge_instances(hub, timedelta(days=7))

    assert "finished sagas stay in the task hub for now" in caplog.text
