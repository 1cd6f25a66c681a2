"""Record how sagas went on real hosts: `python -m tests.unit.functions.record_saga_histories`.

A history that was recorded stays: it stands for sagas that were under way when the code changed.
Only courses that have no file yet are recorded.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

import grpc  # type: ignore[import-untyped]
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.internal import orchestrator_service_pb2_grpc as stubs
from google.protobuf.json_format import MessageToJson  # type: ignore[import-untyped]

from local.testing.patience import until
from shared.domain.saga.plan import instance_of
from tests.e2e.stack import Stack, running_stack

HISTORIES = Path(__file__).parent / "saga_histories"
LINES = [{"product": "p", "quantity": 10}, {"product": "q", "quantity": 1}]


def completed(stack: Stack) -> str:
    """Every step is done; the answer is the region that walked."""
    stack.start_saga("east", "completed", lines=LINES)
    return "east"


def sold_out(stack: Stack) -> str:
    """One of two reservations is refused."""
    stack.start_saga("east", "sold_out", lines=[*LINES, {"product": "none", "quantity": 1}])
    return "east"


def timed_out(stack: Stack) -> str:
    """Nobody approves in time."""
    stack.start_saga("east", "timed_out", lines=LINES, approval_seconds=1)
    return "east"


def adopted(stack: Stack) -> str:
    """The region that walked dies, and the other one hears of the approval."""
    stack.start_saga("east", "adopted", lines=LINES, approval_seconds=600)
    stack.kill("east")
    stack.ask("west", "sagas/adopted/events/approved", "POST")
    return "west"


def main() -> None:
    """Record every course that has no file."""
    with (
        tempfile.TemporaryDirectory() as logs,
        running_stack(Path(logs), LOCKSTEP_LEASE_SECONDS="2") as stack,
    ):
        for product in ("p", "q"):
            path = f"sessions/stock%3A{product}/messages?type=stock.receive"
            stack.ask("east", path, "POST", {"quantity": 100})
        path = "sessions/account%3Aada/messages?type=account.deposit"
        stack.ask("east", path, "POST", {"amount": 1000})
        until(lambda: bool(stack.state("east", "account:ada")), seconds=30, what="the deposit")
        for course in (completed, sold_out, timed_out, adopted):
            if not (HISTORIES / f"{course.__name__}.json").exists():
                record(stack, course)


def record(stack: Stack, course: Callable[[Stack], str]) -> None:
    """Let a course run to its end and keep its history."""
    name = course.__name__
    region = course(stack)
    with grpc.insecure_channel(stack.cloud.contract["durable"][region]) as channel:
        stub = stubs.TaskHubSidecarServiceStub(channel)  # type: ignore[no-untyped-call]

        def is_over() -> bool:
            found = stub.GetInstance(pb.GetInstanceRequest(instanceId=instance_of(name)))
            status = found.orchestrationState.orchestrationStatus
            return bool(status == pb.ORCHESTRATION_STATUS_COMPLETED)

        until(is_over, seconds=60, what=f"the end of {name}")
        request = pb.StreamInstanceHistoryRequest(instanceId=instance_of(name))
        events = [event for chunk in stub.StreamInstanceHistory(request) for event in chunk.events]
    history = pb.OrchestratorRequest(instanceId=instance_of(name), pastEvents=events)
    (HISTORIES / f"{name}.json").write_text(MessageToJson(history, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
