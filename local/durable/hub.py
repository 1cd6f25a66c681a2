"""The task hub: durabletask's in-memory backend, made fit for workers that die.

The backend of the package loses what a worker takes with it into death. Here every item is handed
out under a lease: an answer counts only while its lease is in force, and an item whose lease ends
without one is handed out again, under another token. So an orchestrator's or entity's turn takes
effect once, and an activity runs at least once, of which the first valid result counts.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.testing.in_memory_backend import ActivityWorkItem, OrchestrationInstance

from local.durable.alarms import Alarms
from local.durable.glance import Bell, OneLook, within_limits
from local.durable.leases import Kind, Lease, Leases
from local.durable.timing import TimedHub

SWEEP_SECONDS_MAX = 5.0

type StatusTest = Callable[[pb.OrchestrationStatus], bool]


@dataclass(frozen=True, slots=True)
class Scheduled:
    """An activity and the run of an instance that called it."""

    instance: OrchestrationInstance
    activity: ActivityWorkItem


class TaskHub(TimedHub):
    """Instances, entities and the work they ask for; safe for threads, in memory only.

    `on_work` says that there may be an item to take. Like `on_change` it is called under the lock,
    on any thread, and must not block. No method waits for a client or a worker.
    """

    def __init__(
        self,
        lease_seconds: float,
        alarms: Alarms,
        on_work: Callable[[], None],
        on_change: Callable[[str], None],
    ) -> None:
        super().__init__(alarms, on_change)
        self._work_available = Bell(on_work)
        self._leases = Leases(lease_seconds)
        self._sweep_seconds = min(lease_seconds / 4, SWEEP_SECONDS_MAX)
        self._activities: dict[str, Scheduled] = {}
        alarms.after(self._sweep_seconds, self._sweep)

    def arrive(self, holder: str) -> None:
        """A worker opened a stream of work items."""
        with self._lock:
            self._leases.arrive(holder)

    def leave(self, holder: str) -> None:
        """A worker's stream ended; with its last one, what it holds goes to others."""
        with self._lock:
            for lease in self._leases.leave(holder):
                self._hand_back(lease)

    def take(self, request: pb.GetWorkItemsRequest, holder: str) -> pb.WorkItem | None:
        """Hand out one item the request's filters and limits allow, if there is one."""
        with self._lock:
            if not self._leases.is_present(holder):
                return None
            wanted = within_limits(request, partial(self._leases.holds, holder))
            item = next(iter(super().GetWorkItems(wanted, OneLook())), None)
            if item is not None:
                self._lend(item, holder)
            return item

    def state(
        self, request: pb.GetInstanceRequest, is_reached: StatusTest
    ) -> pb.GetInstanceResponse | None:
        """Tell of an instance if its status passes the test, or if there is none; else None."""
        with self._lock:
            instance = self._instances.get(request.instanceId)
            if instance is None:
                return pb.GetInstanceResponse(exists=False)
            if not is_reached(instance.status):
                return None
            return self._build_instance_response(instance, request.getInputsAndOutputs)

    def is_started(self, status: pb.OrchestrationStatus) -> bool:
        """Whether there has been a first turn."""
        return status != pb.ORCHESTRATION_STATUS_PENDING

    def is_over(self, status: pb.OrchestrationStatus) -> bool:
        """Whether a status is final."""
        return self._is_terminal_status(status)

    def CompleteOrchestratorTask(self, request: pb.OrchestratorResponse, context: Any) -> Any:  # noqa: N802
        """Take an orchestrator's decisions; those of an ended lease are dropped."""
        with self._lock:
            answer = pb.CompleteTaskResponse()
            if self._leases.end(request.completionToken) is not None:
                answer = super().CompleteOrchestratorTask(request, context)
                self._rouse(request.instanceId)
                self._work_available.set()
            return answer

    def CompleteActivityTask(self, request: pb.ActivityResponse, context: Any) -> Any:  # noqa: N802
        """Take an activity's result; a second one, or one nobody waits for, is dropped."""
        with self._lock:
            lease = self._leases.end(request.completionToken)
            self._work_available.set()
            if lease is None or not self._is_awaited(self._activities.pop(lease.token)):
                return pb.CompleteTaskResponse()
            return super().CompleteActivityTask(request, context)

    def CompleteEntityTask(self, request: pb.EntityBatchResult, context: Any) -> Any:  # noqa: N802
        """Take an entity's new state and results; those of an ended lease are dropped."""
        with self._lock:
            if self._leases.end(request.completionToken) is None:
                return pb.CompleteTaskResponse()
            self._work_available.set()
            return super().CompleteEntityTask(request, context)

    def AbandonTaskOrchestratorWorkItem(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Take an item back unanswered."""
        self._abandon(request.completionToken)
        return pb.AbandonOrchestrationTaskResponse()

    def AbandonTaskActivityWorkItem(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Take an item back unanswered."""
        self._abandon(request.completionToken)
        return pb.AbandonActivityTaskResponse()

    def AbandonTaskEntityWorkItem(self, request: Any, context: Any) -> Any:  # noqa: ARG002, N802
        """Take an item back unanswered."""
        self._abandon(request.completionToken)
        return pb.AbandonEntityTaskResponse()

    def _process_schedule_task_action(
        self, instance: OrchestrationInstance, action: pb.OrchestratorAction
    ) -> None:
        super()._process_schedule_task_action(instance, action)
        self._schedule(Scheduled(instance, self._activity_queue.pop()))

    def _schedule(self, scheduled: Scheduled) -> None:
        """Queue an activity under a token of its own; the package's are one for a whole turn."""
        activity = replace(scheduled.activity, completion_token=self._new_token())
        self._activities[str(activity.completion_token)] = scheduled
        self._activity_queue.append(activity)
        self._work_available.set()

    def _is_awaited(self, scheduled: Scheduled) -> bool:
        instance, task_id = scheduled.instance, scheduled.activity.task_id
        return self._instances.get(instance.instance_id) is instance and any(
            event.HasField("taskScheduled") and event.eventId == task_id
            for event in instance.history
        )

    def _lend(self, item: pb.WorkItem, holder: str) -> None:
        kind = Kind(item.WhichOneof("request"))
        match kind:
            case Kind.ORCHESTRATION:
                instance_id = item.orchestratorRequest.instanceId
            case Kind.ACTIVITY:
                instance_id = item.activityRequest.orchestrationInstance.instanceId
            case Kind.ENTITY:
                instance_id = item.entityRequestV2.instanceId
        self._leases.grant(item.completionToken, kind, instance_id, holder)

    def _abandon(self, token: str) -> None:
        with self._lock:
            lease = self._leases.end(token)
            if lease is not None:
                self._hand_back(lease)

    def _sweep(self) -> None:
        with self._lock:
            for lease in self._leases.expired():
                self._hand_back(lease)
        self._alarms.after(self._sweep_seconds, self._sweep)

    def _hand_back(self, lease: Lease) -> None:
        """Queue an item again under a new token, so that an answer under the old one is known."""
        match lease.kind:
            case Kind.ORCHESTRATION:
                self._hand_back_turn(lease)
            case Kind.ACTIVITY:
                self._schedule(self._activities.pop(lease.token))
            case Kind.ENTITY:
                self._hand_back_batch(lease)

    def _hand_back_turn(self, lease: Lease) -> None:
        self._orchestration_in_flight.discard(lease.instance_id)
        instance = self._instances.get(lease.instance_id)
        if instance is not None and str(instance.completion_token) == lease.token:
            instance.pending_events[:0] = instance.dispatched_events
            instance.dispatched_events.clear()
            instance.completion_token = self._new_token()
        self._rouse(lease.instance_id)

    def _hand_back_batch(self, lease: Lease) -> None:
        self._entity_in_flight.discard(lease.instance_id)
        entity = self._entities.get(lease.instance_id)
        if entity is not None and str(entity.completion_token) == lease.token:
            entity.pending_operations[:0] = entity.dispatched_operations
            entity.dispatched_operations.clear()
            entity.completion_token = self._new_token()
            self._enqueue_entity(lease.instance_id)

    def _new_token(self) -> int:
        token = self._next_completion_token
        self._next_completion_token += 1
        return token
