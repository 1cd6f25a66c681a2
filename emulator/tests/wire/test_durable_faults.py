"""Faults of the Durable backend: calls refused, answers dropped, a hub that is down."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import grpc  # type: ignore[import-untyped]
import pytest
from durabletask.client import TaskHubGrpcClient

from local.counters import Counters
from local.durable.backend import DurableBackend
from local.faults import Action, Fault, Faults
from wire.durable_by_hand import output_of, worker

pytestmark = pytest.mark.wire


@dataclass(frozen=True, slots=True)
class Hub:
    """A running backend, a client of it, and what breaks and counts it."""

    backend: DurableBackend
    client: TaskHubGrpcClient
    faults: Faults
    counters: Counters


@pytest.fixture
def hub() -> Iterator[Hub]:
    faults, counters = Faults(), Counters()
    backend = DurableBackend("east", faults=faults, counters=counters)
    backend.start()
    try:
        with TaskHubGrpcClient(host_address=backend.address) as client:
            yield Hub(backend, client, faults, counters)
    finally:
        backend.stop()


def test_calls_are_counted_and_faults_hit_them(hub: Hub) -> None:
    with worker(hub.backend) as only:
        hub.faults.arm(Fault("durable", Action.STATUS, "start-instance", status=429, times=1))
        assert refused(hub.client, "one") is grpc.StatusCode.RESOURCE_EXHAUSTED
        hub.faults.arm(Fault("durable", Action.DROP_ANSWER, "start-instance", times=1))
        assert refused(hub.client, "two") is grpc.StatusCode.UNAVAILABLE
        assert refused(hub.client, "two") is grpc.StatusCode.ALREADY_EXISTS
        only.finish(only.next(), "done")
        assert output_of(hub.client, "two") == "done"
    counted = {
        (operation, status): row["count"]
        for operation, rows in hub.counters.snapshot()["durable.east"].items()
        for status, row in rows.items()
    }
    assert counted == {
        ("start-instance", "resource-exhausted"): 1,
        ("start-instance", "unavailable"): 1,
        ("start-instance", "already-exists"): 1,
        ("get-work-items", "ok"): 1,
        ("hand-out", "ok"): 1,
        ("complete-orchestrator-task", "ok"): 1,
        ("wait-for-instance-completion", "ok"): 1,
    }


def test_a_hub_that_goes_down_ends_at_once_the_calls_that_wait(hub: Hub) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    instance = hub.client.schedule_new_orchestration("saga", start_at=tomorrow)
    with worker(hub.backend) as idle, ThreadPoolExecutor(1) as threads:
        idle.wait_until_there()
        waiting = threads.submit(hub.client.wait_for_orchestration_completion, instance, timeout=60)
        fault = hub.faults.arm(Fault("durable", Action.DOWN))

        with pytest.raises(grpc.RpcError) as cut:
            idle.next()
        assert cut.value.code() is grpc.StatusCode.UNAVAILABLE
        with pytest.raises(grpc.RpcError) as ended:
            waiting.result()
        assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
        assert refused(hub.client, "three") is grpc.StatusCode.UNAVAILABLE

    hub.faults.disarm(fault)
    hub.client.schedule_new_orchestration("saga", instance_id="four")
    with worker(hub.backend) as next_one:
        next_one.finish(next_one.next(), "done")
        assert output_of(hub.client, "four") == "done"


def refused(client: TaskHubGrpcClient, instance: str) -> grpc.StatusCode:
    """With which status an instance is refused."""
    with pytest.raises(grpc.RpcError) as refusal:
        client.schedule_new_orchestration("saga", instance_id=instance)
    return refusal.value.code()
