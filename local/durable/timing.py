"""The package's in-memory backend with what it leaves out about time and order.

Start times are honoured, timers and delayed signals share one thread, a parent waits for its
sub-orchestration however long that takes, and what belongs to an earlier run of an instance does
not reach a later one.
"""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.testing.in_memory_backend import (
    InMemoryOrchestrationBackend,
    OrchestrationInstance,
)

from local.durable.alarms import Alarms

HISTORY_EVENTS_MAX = 1_000_000
WAKING = ("executionResumed", "executionTerminated")


class TimedHub(InMemoryOrchestrationBackend):
    """Instances and entities in memory; `on_change` is told the id of an instance that changed.

    It is called under the lock, on any thread, and must not block.
    """

    def __init__(self, alarms: Alarms, on_change: Callable[[str], None]) -> None:
        super().__init__(max_history_size=HISTORY_EVENTS_MAX)
        self._alarms = alarms
        self._on_change = on_change
        self._starts: dict[str, datetime] = {}
        self._parents: dict[str, list[tuple[str, int]]] = {}

    def StartInstance(self, request: pb.CreateInstanceRequest, context: Any) -> Any:  # noqa: N802
        """Create an instance; one with a start time in the future stays pending until then."""
        with self._lock:
            response = super().StartInstance(request, context)
            instance_id = response.instanceId
            self._starts.pop(instance_id, None)  # of an instance this one replaces
            self._enqueue_orchestration(instance_id)
            start = request.scheduledStartTimestamp.ToDatetime(tzinfo=UTC)
            if start > datetime.now(UTC):
                self._hold_until(instance_id, start)
            return response

    def _hold_until(self, instance_id: str, start: datetime) -> None:
        self._starts[instance_id] = start
        queued = self._orchestration_queue
        self._orchestration_queue = deque(one for one in queued if one != instance_id)
        self._orchestration_queue_set.discard(instance_id)
        self._alarms.after(seconds_until(start), partial(self._begin, instance_id, start))

    def _begin(self, instance_id: str, start: datetime) -> None:
        with self._lock:
            if self._starts.get(instance_id) == start:
                del self._starts[instance_id]
                self._enqueue_orchestration(instance_id)

    def _enqueue_orchestration(self, instance_id: str) -> None:
        """Queue an instance for a turn, unless it is over, held, or has its turn just now."""
        instance = self._instances.get(instance_id)
        if instance is None or self._is_terminal_status(instance.status):
            return
        if instance_id in self._starts or instance_id in self._orchestration_in_flight:
            return
        super()._enqueue_orchestration(instance_id)

    def _rouse(self, instance_id: str) -> None:
        """After a turn, queue the next one if something came up meanwhile."""
        instance = self._instances.get(instance_id)
        if instance is None or not instance.pending_events:
            return
        kinds = {event.WhichOneof("eventType") for event in instance.pending_events}
        if instance.status != pb.ORCHESTRATION_STATUS_SUSPENDED or kinds.intersection(WAKING):
            self._enqueue_orchestration(instance_id)

    def _terminate_instance_internal(
        self, instance_id: str, output: str | None, recursive: bool = False
    ) -> None:
        super()._terminate_instance_internal(instance_id, output)
        if recursive:
            for child in self._children(instance_id):
                self._terminate_instance_internal(child, output, recursive)

    def _children(self, instance_id: str) -> list[str]:
        """The sub-orchestrations an instance waits for."""
        return [
            child
            for child, parents in self._parents.items()
            if any(parent == instance_id for parent, _ in parents)
        ]

    def _process_create_timer_action(
        self, instance: OrchestrationInstance, action: pb.OrchestratorAction
    ) -> None:
        fire_at = action.createTimer.fireAt.ToDatetime(tzinfo=UTC)
        created = helpers.new_timer_created_event(action.id, fire_at)
        instance.history.append(created)
        if instance.status == pb.ORCHESTRATION_STATUS_PENDING:
            instance.status = pb.ORCHESTRATION_STATUS_RUNNING
        self._alarms.after(seconds_until(fire_at), partial(self._fire, instance, created))

    def _fire(self, instance: OrchestrationInstance, created: pb.HistoryEvent) -> None:
        with self._lock:
            current = self._instances.get(instance.instance_id)
            if current is not instance or created not in instance.history:
                return  # another run of the same id, which set other timers
            if self._is_terminal_status(instance.status):
                return
            fire_at = created.timerCreated.fireAt.ToDatetime(tzinfo=UTC)
            instance.pending_events.append(helpers.new_timer_fired_event(created.eventId, fire_at))
            instance.last_updated_at = datetime.now(UTC)
            self._enqueue_orchestration(instance.instance_id)

    def _schedule_delayed_entity_operation(
        self, entity_id: str, event: pb.HistoryEvent, fire_at: datetime
    ) -> None:
        self._alarms.after(seconds_until(fire_at), partial(self._signal, entity_id, event))

    def _signal(self, entity_id: str, event: pb.HistoryEvent) -> None:
        with self._lock:
            self._queue_entity_operation(entity_id, event)

    def _watch_sub_orchestration(
        self, parent_instance_id: str, sub_instance_id: str, task_id: int
    ) -> None:
        self._parents.setdefault(sub_instance_id, []).append((parent_instance_id, task_id))
        self._tell_parents(sub_instance_id)

    def _notify_waiters(self, instance_id: str) -> None:
        super()._notify_waiters(instance_id)
        self._tell_parents(instance_id)
        self._on_change(instance_id)

    def _tell_parents(self, instance_id: str) -> None:
        instance = self._instances.get(instance_id)
        if instance is None or not self._is_terminal_status(instance.status):
            return
        for parent_id, task_id in self._parents.pop(instance_id, ()):
            parent = self._instances.get(parent_id)
            if parent is not None and not self._is_terminal_status(parent.status):
                parent.pending_events.append(end_of_sub_orchestration(instance, task_id))
                parent.last_updated_at = datetime.now(UTC)
                self._enqueue_orchestration(parent_id)


def end_of_sub_orchestration(instance: OrchestrationInstance, task_id: int) -> pb.HistoryEvent:
    """The event with which a parent learns how its sub-orchestration ended."""
    if instance.status == pb.ORCHESTRATION_STATUS_COMPLETED:
        return helpers.new_sub_orchestration_completed_event(task_id, instance.output)
    details = instance.failure_details
    reason = details.errorMessage if details else "the sub-orchestration was terminated"
    return helpers.new_sub_orchestration_failed_event(task_id, Exception(reason))


def seconds_until(moment: datetime) -> float:
    """How long until a moment; negative if it is over."""
    return (moment - datetime.now(UTC)).total_seconds()
