"""The task hub: durabletask's in-memory backend, made fit for workers that die.

The backend of the package loses what a worker had taken when it died. Here every item is handed
out under a lease: an answer counts only while its lease is in force, and an item whose lease ends
without one is handed out again, under another token. So an orchestrator's or entity's turn takes
effect once, and an activity runs at least once, of which the first valid result counts.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from types import SimpleNamespace
from typing import Any, override

from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.testing.in_memory_backend import ActivityWorkItem, OrchestrationInstance

from local.durable.timing import TimedBackend, Timers

LEASE_CHECK_SECONDS_MAX = 5.0

type ScheduledActivity = tuple[OrchestrationInstance, ActivityWorkItem]  # the run that called it


class WorkItemKind(Enum):
    """The kind of function that a work item runs, by the name of its field on the wire."""

    ORCHESTRATION = "orchestratorRequest"
    ACTIVITY = "activityRequest"
    ENTITY = "entityRequestV2"


@dataclass(frozen=True, slots=True)
class WorkItemLease:
    """One item handed out; the token is new each time an item is handed out."""

    token: str
    kind: WorkItemKind
    instance_id: str
    holder: str
    ends: float


class WorkItemLeases:
    """The leases in force and the workers that are there; not safe for threads by itself."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._held: dict[str, WorkItemLease] = {}
        self._streams: Counter[str] = Counter()

    def grant(self, token: str, kind: WorkItemKind, instance_id: str, holder: str) -> None:
        ends = time.monotonic() + self._seconds
        self._held[token] = WorkItemLease(token, kind, instance_id, holder, ends)

    def end(self, token: str) -> WorkItemLease | None:
        """End a lease; None if it is in force no more, so its result is worth nothing."""
        return self._held.pop(token, None)

    def count_by_kind(self, holder: str) -> Counter[WorkItemKind]:
        return Counter(one.kind for one in self._held.values() if one.holder == holder)

    def add_stream(self, holder: str) -> None:
        """Note that a worker opened a stream; it is there until its last one closes."""
        self._streams[holder] += 1

    def is_present(self, holder: str) -> bool:
        return self._streams[holder] > 0

    def remove_stream(self, holder: str) -> list[WorkItemLease]:
        """Note that a stream closed; with a worker's last one its leases end and are returned."""
        self._streams[holder] -= 1
        if self._streams[holder] > 0:
            return []
        del self._streams[holder]
        return self._end_where(lambda lease: lease.holder == holder)

    def expire(self) -> list[WorkItemLease]:
        now = time.monotonic()
        return self._end_where(lambda lease: lease.ends <= now)

    def _end_where(self, applies: Callable[[WorkItemLease], bool]) -> list[WorkItemLease]:
        ended = [lease for lease in self._held.values() if applies(lease)]
        for lease in ended:
            del self._held[lease.token]
        return ended


class WorkAvailable(threading.Event):
    """The event the package's backend sets when there is work: calls back, and is never waited on.

    With it and a caller that is there for one look, the package's `GetWorkItems`, which is a loop
    that looks for an item and then waits on the event, returns one item or none at once.
    """

    def __init__(self, on_work: Callable[[], None]) -> None:
        super().__init__()
        self._on_work = on_work

    @override
    def set(self) -> None:
        self._on_work()

    @override
    def wait(self, timeout: float | None = None) -> bool:
        return False


class LeasingTaskHub(TimedBackend):
    """Instances, entities and the work they ask for; safe for threads, in memory only.

    `on_work` is called when there may be an item to take, `on_change` with the id of an instance
    that changed. Both are called under the lock, on any thread, and must not block. No method waits
    for a client or a worker.
    """

    def __init__(
        self,
        lease_seconds: float,
        timers: Timers,
        on_work: Callable[[], None],
        on_change: Callable[[str], None],
    ) -> None:
        super().__init__(timers)
        self._work_available = WorkAvailable(on_work)
        self._on_change = on_change
        self._leases = WorkItemLeases(lease_seconds)
        self._lease_check_seconds = min(lease_seconds / 4, LEASE_CHECK_SECONDS_MAX)
        self._activities: dict[str, ScheduledActivity] = {}
        timers.after(self._lease_check_seconds, self._end_expired_leases)

    def add_worker_stream(self, holder: str) -> None:
        with self._lock:
            self._leases.add_stream(holder)

    def remove_worker_stream(self, holder: str) -> None:
        """Note that a worker's stream ended; with its last one, what it holds goes to others."""
        with self._lock:
            for lease in self._leases.remove_stream(holder):
                self._hand_back(lease)

    def take(self, request: pb.GetWorkItemsRequest, holder: str) -> pb.WorkItem | None:
        """Hand out one item the request's filters and limits allow, if there is one."""
        with self._lock:
            if not self._leases.is_present(holder):
                return None
            wanted = self._within_limits(request, holder)
            one_look = SimpleNamespace(is_active=iter((True, False)).__next__)
            item = next(iter(super().GetWorkItems(wanted, one_look)), None)
            if item is not None:
                kind = WorkItemKind(item.WhichOneof("request"))
                work = getattr(item, kind.value)
                if kind is WorkItemKind.ACTIVITY:
                    work = work.orchestrationInstance
                self._leases.grant(item.completionToken, kind, work.instanceId, holder)
            return item

    def _within_limits(
        self, request: pb.GetWorkItemsRequest, holder: str
    ) -> pb.GetWorkItemsRequest:
        """The request without the kinds of which the worker holds as many as it may.

        A worker that sets no filters takes everything, whatever limits it names.
        """
        wanted = pb.GetWorkItemsRequest()
        wanted.CopyFrom(request)
        if not request.HasField("workItemFilters"):
            return wanted
        held, filters = self._leases.count_by_kind(holder), wanted.workItemFilters
        if held[WorkItemKind.ORCHESTRATION] >= request.maxConcurrentOrchestrationWorkItems:
            filters.ClearField("orchestrations")
        if held[WorkItemKind.ACTIVITY] >= request.maxConcurrentActivityWorkItems:
            filters.ClearField("activities")
        if held[WorkItemKind.ENTITY] >= request.maxConcurrentEntityWorkItems:
            filters.ClearField("entities")
        return wanted

    @override
    def CompleteOrchestratorTask(self, request: pb.OrchestratorResponse, context: Any) -> Any:
        """Take an orchestrator's decisions; those of an ended lease are dropped."""
        with self._lock:
            if self._leases.end(request.completionToken) is None:
                return pb.CompleteTaskResponse()
            instance = self._instances.get(request.instanceId)
            queued = len(self._activity_queue)
            answer = super().CompleteOrchestratorTask(request, context)
            if instance is not None:
                self._schedule_new_activities(instance, queued)
            self.notify_parents(request.instanceId)
            self._on_change(request.instanceId)
            self.resume_after_turn(request.instanceId)
            self._work_available.set()
            return answer

    @override
    def CompleteActivityTask(self, request: pb.ActivityResponse, context: Any) -> Any:
        """Take an activity's result; a second one, or one nobody waits for, is dropped."""
        with self._lock:
            lease = self._leases.end(request.completionToken)
            self._work_available.set()
            if lease is None or not self._is_awaited(self._activities.pop(lease.token)):
                return pb.CompleteTaskResponse()
            return super().CompleteActivityTask(request, context)

    @override
    def CompleteEntityTask(self, request: pb.EntityBatchResult, context: Any) -> Any:
        """Take an entity's new state and results; those of an ended lease are dropped."""
        with self._lock:
            if self._leases.end(request.completionToken) is None:
                return pb.CompleteTaskResponse()
            self._work_available.set()
            return super().CompleteEntityTask(request, context)

    @override
    def AbandonTaskOrchestratorWorkItem(self, request: Any, context: Any) -> Any:
        self._abandon(request.completionToken)
        return pb.AbandonOrchestrationTaskResponse()

    @override
    def AbandonTaskActivityWorkItem(self, request: Any, context: Any) -> Any:
        self._abandon(request.completionToken)
        return pb.AbandonActivityTaskResponse()

    @override
    def AbandonTaskEntityWorkItem(self, request: Any, context: Any) -> Any:
        self._abandon(request.completionToken)
        return pb.AbandonEntityTaskResponse()

    def _abandon(self, token: str) -> None:
        with self._lock:
            lease = self._leases.end(token)
            if lease is not None:
                self._hand_back(lease)

    def _schedule_new_activities(self, instance: OrchestrationInstance, queued: int) -> None:
        """Give each activity of a turn a token of its own; the package has one for all of them."""
        new = [self._activity_queue.pop() for _ in range(len(self._activity_queue) - queued)]
        for activity in reversed(new):
            self._schedule((instance, activity))

    def _schedule(self, scheduled: ScheduledActivity) -> None:
        activity = replace(scheduled[1], completion_token=self._new_token())
        self._activities[str(activity.completion_token)] = scheduled
        self._activity_queue.append(activity)
        self._work_available.set()

    def _is_awaited(self, scheduled: ScheduledActivity) -> bool:
        """Return whether the run that called an activity is current and still knows the call."""
        instance, activity = scheduled
        return self._instances.get(instance.instance_id) is instance and any(
            event.HasField("taskScheduled") and event.eventId == activity.task_id
            for event in instance.history
        )

    def _end_expired_leases(self) -> None:
        with self._lock:
            for lease in self._leases.expire():
                self._hand_back(lease)
        self._timers.after(self._lease_check_seconds, self._end_expired_leases)

    def _hand_back(self, lease: WorkItemLease) -> None:
        """Queue an item again under a new token, so that an answer under the old one is dropped."""
        match lease.kind:
            case WorkItemKind.ORCHESTRATION:
                self._orchestration_in_flight.discard(lease.instance_id)
                instance = self._instances.get(lease.instance_id)
                if instance is not None and str(instance.completion_token) == lease.token:
                    instance.pending_events[:0] = instance.dispatched_events
                    instance.dispatched_events.clear()
                    instance.completion_token = self._new_token()
                self.resume_after_turn(lease.instance_id)
            case WorkItemKind.ACTIVITY:
                self._schedule(self._activities.pop(lease.token))
            case WorkItemKind.ENTITY:
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
