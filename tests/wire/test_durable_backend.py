"""The Durable backend against durabletask's own client, and workers that misbehave."""

import asyncio
import json
import socket
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationStatus, TaskHubGrpcClient
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal import orchestrator_service_pb2_grpc as stubs
from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]

from local.counters import Counters
from local.durable.backend import DurableBackend
from local.faults import Action, Fault, Faults
from local.loopback import PortTaken

pytestmark = pytest.mark.wire

ITEM_SECONDS = 5.0


@pytest.fixture
def backend() -> Iterator[DurableBackend]:
    backend = DurableBackend()
    backend.start()
    yield backend
    backend.stop()


@pytest.fixture
def client(backend: DurableBackend) -> Iterator[TaskHubGrpcClient]:
    with TaskHubGrpcClient(host_address=backend.address) as client:
        yield client


class ByHand:
    """A worker whose every step is taken by the test."""

    def __init__(self, channel: grpc.Channel, worker_id: str = "") -> None:
        self.stub = stubs.TaskHubSidecarServiceStub(channel)  # type: ignore[no-untyped-call]
        request = pb.GetWorkItemsRequest(worker_instance_id=worker_id)
        self._stream = self.stub.GetWorkItems(request, timeout=ITEM_SECONDS)

    def next(self) -> pb.WorkItem:
        """The next item; a failure of the stream if none comes in time."""
        item: pb.WorkItem = next(self._stream)
        return item

    def wait_until_there(self) -> None:
        """Return when the backend knows of the stream."""
        self._stream.initial_metadata()

    def leave(self) -> None:
        """Close the stream."""
        self._stream.cancel()

    def schedule(self, item: pb.WorkItem, *activities: str) -> None:
        """Answer an orchestrator's turn: call these activities."""
        numbers = count(1)
        self.decide(
            item,
            *(
                pb.OrchestratorAction(
                    id=next(numbers), scheduleTask=pb.ScheduleTaskAction(name=name)
                )
                for name in activities
            ),
        )

    def finish(self, item: pb.WorkItem, output: str) -> None:
        """Answer an orchestrator's turn: it is done."""
        done = pb.CompleteOrchestrationAction(
            orchestrationStatus=pb.ORCHESTRATION_STATUS_COMPLETED,
            result=StringValue(value=json.dumps(output)),
        )
        self.decide(item, pb.OrchestratorAction(id=99, completeOrchestration=done))

    def answer(self, item: pb.WorkItem, result: str) -> None:
        """Answer an activity."""
        request = item.activityRequest
        self.stub.CompleteActivityTask(
            pb.ActivityResponse(
                instanceId=request.orchestrationInstance.instanceId,
                taskId=request.taskId,
                result=StringValue(value=json.dumps(result)),
                completionToken=item.completionToken,
            )
        )

    def decide(self, item: pb.WorkItem, *actions: pb.OrchestratorAction) -> None:
        self.stub.CompleteOrchestratorTask(
            pb.OrchestratorResponse(
                instanceId=item.orchestratorRequest.instanceId,
                actions=actions,
                completionToken=item.completionToken,
            )
        )


@contextmanager
def worker(backend: DurableBackend, worker_id: str = "") -> Iterator[ByHand]:
    """A worker of the backend, with a connection of its own."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(backend.address, options=options) as channel:
        yield ByHand(channel, worker_id)


def results_of(item: pb.WorkItem) -> list[str]:
    """The results of activities that are new in a turn."""
    return [
        json.loads(event.taskCompleted.result.value)
        for event in item.orchestratorRequest.newEvents
        if event.HasField("taskCompleted")
    ]


def output_of(client: TaskHubGrpcClient, instance: str) -> Any:
    """An instance's output once it is over."""
    state = client.wait_for_orchestration_completion(instance, timeout=5)
    assert state is not None
    return json.loads(state.serialized_output or "null")


def test_an_activity_of_a_worker_that_leaves_goes_to_another(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    instance = client.schedule_new_orchestration("saga")
    with worker(backend) as first:
        first.schedule(first.next(), "pay")
        lost = first.next()
        assert lost.activityRequest.name == "pay"
    with worker(backend) as second:
        again = second.next()
        assert again.activityRequest == lost.activityRequest
        assert again.completionToken != lost.completionToken

        second.answer(again, "paid")
        turn = second.next()
        assert results_of(turn) == ["paid"]
        second.finish(turn, "done")

    assert output_of(client, instance) == "done"


def test_a_turn_of_a_worker_that_leaves_goes_to_another_with_the_same_events(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    instance = client.schedule_new_orchestration("saga")
    with worker(backend) as first:
        lost = first.next()
    with worker(backend) as second:
        again = second.next()
        assert again.orchestratorRequest == lost.orchestratorRequest
        second.finish(again, "done")

    assert output_of(client, instance) == "done"


def test_an_item_not_answered_in_time_comes_again_and_the_late_answer_is_dropped() -> None:
    backend = DurableBackend(lease_seconds=0.3)
    backend.start()
    try:
        with (
            TaskHubGrpcClient(host_address=backend.address) as client,
            worker(backend) as silent,
        ):
            instance = client.schedule_new_orchestration("saga")
            late = silent.next()
            again = silent.next()
            silent.finish(late, "late")
            silent.finish(again, "in time")

            assert output_of(client, instance) == "in time"
    finally:
        backend.stop()


def test_a_second_answer_to_an_activity_changes_nothing(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    instance = client.schedule_new_orchestration("saga")
    with worker(backend) as only:
        only.schedule(only.next(), "pay")
        activity = only.next()
        only.answer(activity, "first")
        only.answer(activity, "second")
        turn = only.next()
        assert results_of(turn) == ["first"]
        only.answer(activity, "third")
        only.finish(turn, "done")

    assert output_of(client, instance) == "done"
    history = client.get_orchestration_history(instance)
    assert sum(type(event).__name__ == "TaskCompletedEvent" for event in history) == 1


def test_a_worker_with_two_streams_keeps_its_items_until_both_are_closed(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    instance = client.schedule_new_orchestration("saga")
    with worker(backend, "one") as first:
        turn = first.next()
        with worker(backend, "one") as same:
            same.wait_until_there()
            first.leave()
            same.finish(turn, "done")

    assert output_of(client, instance) == "done"


def test_an_instance_does_not_start_before_its_time(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    start = datetime.now(UTC) + timedelta(seconds=0.6)
    later = client.schedule_new_orchestration("later", start_at=start)
    client.raise_orchestration_event(later, "nudge")
    client.schedule_new_orchestration("now")
    with worker(backend) as only:
        first, second = only.next(), only.next()

        assert name_of(first) == "now"
        assert name_of(second) == "later"
        assert datetime.now(UTC) >= start


async def test_waiting_clients_do_not_keep_the_others_out(backend: DurableBackend) -> None:
    async with AsyncTaskHubGrpcClient(host_address=backend.address) as client:
        instance = await client.schedule_new_orchestration("saga")
        waits = [
            asyncio.create_task(client.wait_for_orchestration_completion(instance, timeout=20))
            for _ in range(200)
        ]
        await asyncio.sleep(0)
        with worker(backend) as only, ThreadPoolExecutor(1) as thread:
            loop = asyncio.get_running_loop()
            turn = await loop.run_in_executor(thread, only.next)
            await loop.run_in_executor(thread, only.finish, turn, "done")
        states = await asyncio.gather(*waits)

    assert {state.runtime_status for state in states if state} == {OrchestrationStatus.COMPLETED}
    assert all(states)


def test_a_wait_ends_with_its_time_and_at_once_for_an_unknown_instance(
    client: TaskHubGrpcClient,
) -> None:
    instance = client.schedule_new_orchestration("nobody runs this")

    with pytest.raises(TimeoutError):
        client.wait_for_orchestration_completion(instance, timeout=1)
    assert client.wait_for_orchestration_completion(uuid.uuid4().hex, timeout=20) is None


def test_terminating_an_orchestrator_reaches_its_sub_orchestrations(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    instance = client.schedule_new_orchestration("parent")
    with worker(backend) as only:
        turn = only.next()
        child = pb.CreateSubOrchestrationAction(instanceId="child", name="child")
        action = pb.OrchestratorAction(id=1, createSubOrchestration=child)
        only.decide(turn, action)
        assert name_of(only.next()) == "child"

        client.terminate_orchestration(instance, recursive=True)

        ended = only.next()
        assert ended.orchestratorRequest.instanceId == instance
        assert any(e.HasField("executionTerminated") for e in ended.orchestratorRequest.newEvents)


def test_an_id_that_is_taken_is_refused(client: TaskHubGrpcClient) -> None:
    client.schedule_new_orchestration("saga", instance_id="one")

    with pytest.raises(grpc.RpcError) as refusal:
        client.schedule_new_orchestration("saga", instance_id="one")

    assert refusal.value.code() is grpc.StatusCode.ALREADY_EXISTS


def test_only_this_machine_reaches_it_and_a_taken_port_is_said(backend: DurableBackend) -> None:
    with pytest.raises(PortTaken, match="Durable"):
        DurableBackend(backend.port).start()
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.2", backend.port))  # free there, so it is not on every address


def test_it_stops_at_once_with_clients_waiting_and_starts_again_on_its_port() -> None:
    backend = DurableBackend()
    backend.start()
    port = backend.port
    with worker(backend), TaskHubGrpcClient(host_address=backend.address) as client:
        client.schedule_new_orchestration("saga")
        began = time.monotonic()
        backend.stop()
        assert time.monotonic() - began < 2
    backend.start()
    try:
        assert backend.port == port
    finally:
        backend.stop()


def test_calls_are_counted_and_faults_hit_them() -> None:
    faults, counters = Faults(), Counters()
    backend = DurableBackend(faults=faults, counters=counters)
    backend.start()
    try:
        with TaskHubGrpcClient(host_address=backend.address) as client, worker(backend) as only:
            faults.arm(Fault("durable", Action.STATUS, "start-instance", status=429, times=1))
            assert refused(client, "one") is grpc.StatusCode.RESOURCE_EXHAUSTED
            faults.arm(Fault("durable", Action.DROP_ANSWER, "start-instance", times=1))
            assert refused(client, "two") is grpc.StatusCode.UNAVAILABLE
            assert refused(client, "two") is grpc.StatusCode.ALREADY_EXISTS
            only.finish(only.next(), "done")
            assert output_of(client, "two") == "done"
    finally:
        backend.stop()
    counted = {
        (operation, status): row["count"]
        for operation, rows in counters.snapshot()["durable"].items()
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


def refused(client: TaskHubGrpcClient, instance: str) -> grpc.StatusCode:
    """With which status an instance is refused."""
    with pytest.raises(grpc.RpcError) as refusal:
        client.schedule_new_orchestration("saga", instance_id=instance)
    return refusal.value.code()


def test_a_method_that_is_not_honoured_says_so(backend: DurableBackend) -> None:
    with worker(backend) as only, pytest.raises(grpc.RpcError) as refusal:
        only.stub.SkipGracefulOrchestrationTerminations(
            pb.SkipGracefulOrchestrationTerminationsRequest()
        )

    assert refusal.value.code() is grpc.StatusCode.UNIMPLEMENTED


def name_of(item: pb.WorkItem) -> str:
    """The orchestrator an item starts."""
    events = item.orchestratorRequest.newEvents
    return str(next(e.executionStarted.name for e in events if e.HasField("executionStarted")))
