"""The Durable backend against durabletask's own client, and workers that misbehave."""

import asyncio
import socket
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import grpc  # type: ignore[import-untyped]
import pytest
from durabletask.client import AsyncTaskHubGrpcClient, OrchestrationStatus, TaskHubGrpcClient
from durabletask.internal import orchestrator_service_pb2 as pb

from local.durable.backend import DurableBackend
from local.loopback import PortTaken, held_port
from local.testing.patience import Patience
from wire.durable_by_hand import output_of, results_of, worker

pytestmark = pytest.mark.wire
SOON_SECONDS = 30.0  # half of what a client stays for, which a stop must not wait for


@pytest.fixture
def backend() -> Iterator[DurableBackend]:
    backend = DurableBackend("east")
    backend.start()
    yield backend
    backend.stop()


@pytest.fixture
def client(backend: DurableBackend) -> Iterator[TaskHubGrpcClient]:
    with TaskHubGrpcClient(host_address=backend.address) as client:
        yield client


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
    backend = DurableBackend("east", lease_seconds=1.5)
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
    start = datetime.now(UTC) + timedelta(seconds=1.5)
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
            asyncio.create_task(client.wait_for_orchestration_completion(instance, timeout=60))
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


def test_the_id_of_an_instance_that_is_over_starts_anew(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    client.schedule_new_orchestration("saga", instance_id="one", input="first")
    with worker(backend) as only:
        only.schedule(only.next(), "pay")
        activity = only.next()
        client.terminate_orchestration("one")
        only.finish(only.next(), "ended")
        assert output_of(client, "one") == "ended"

        client.schedule_new_orchestration("saga", instance_id="one", input="second")

        turn = only.next()
        begun = [e for e in turn.orchestratorRequest.newEvents if e.HasField("executionStarted")]
        assert [event.executionStarted.input.value for event in begun] == ['"second"']
        assert not turn.orchestratorRequest.pastEvents
        only.answer(activity, "of the first run")  # reaches nobody
        only.finish(turn, "done")

    assert output_of(client, "one") == "done"


def test_an_instance_that_is_over_refuses_an_event(
    backend: DurableBackend, client: TaskHubGrpcClient
) -> None:
    instance = client.schedule_new_orchestration("saga")
    with worker(backend) as only:
        only.finish(only.next(), "done")
    assert output_of(client, instance) == "done"

    with pytest.raises(grpc.RpcError) as refusal:
        client.raise_orchestration_event(instance, "late")

    assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION


def test_only_this_machine_reaches_it_and_a_taken_port_is_refused(backend: DurableBackend) -> None:
    with pytest.raises(PortTaken, match=r"durable\.east"):
        DurableBackend("east", port=backend.port).start()
    with socket.socket() as elsewhere:
        elsewhere.bind(("127.0.0.2", backend.port))  # free there, so it is not on every address


def test_it_stops_at_once_with_clients_waiting_and_starts_again_on_its_port() -> None:
    with held_port(0, "a test") as port:
        backend = DurableBackend("east", port=port)
        backend.start()
        with worker(backend), TaskHubGrpcClient(host_address=backend.address) as client:
            client.schedule_new_orchestration("saga")
            patience = Patience(SOON_SECONDS)
            backend.stop()
            assert not patience.is_over()
        backend.start()
        try:
            assert backend.port == port
        finally:
            backend.stop()


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
