"""Finished sagas leave their region's task hub, over durabletask's own client."""

import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from durabletask.client import AsyncTaskHubGrpcClient, TaskHubGrpcClient
from durabletask.task import OrchestrationContext
from durabletask.worker import TaskHubGrpcWorker

from functions.triggers.saga_instances import purge_instances
from local.durable.backend import DurableBackend

pytestmark = pytest.mark.wire


def saga(context: OrchestrationContext, is_done: bool) -> Any:
    """An orchestration that is done at once, or waits for ever."""
    if not is_done:
        yield context.wait_for_external_event("paid")


@pytest.fixture
def backend() -> Iterator[DurableBackend]:
    backend = DurableBackend("east")
    backend.start()
    yield backend
    backend.stop()


async def test_what_is_finished_and_old_goes_and_what_runs_stays(
    backend: DurableBackend, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        TaskHubGrpcWorker(host_address=backend.address) as worker,
        TaskHubGrpcClient(host_address=backend.address) as client,
    ):
        worker.add_orchestrator(saga)
        worker.start()  # type: ignore[no-untyped-call]
        done = client.schedule_new_orchestration(saga, input=True)
        assert client.wait_for_orchestration_completion(done, timeout=60) is not None
        running = client.schedule_new_orchestration(saga, input=False)
        assert client.wait_for_orchestration_start(running, timeout=60) is not None
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
