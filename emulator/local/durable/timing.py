"""The package's in-memory backend with what it leaves out about time and order.

Start times are honoured, timers and delayed signals share one thread and are found as late as Azure
Storage's queues are looked at, a parent waits for its
sub-orchestration however long that takes, and what belongs to an earlier run of an instance does
not reach a later one.
"""

import time
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from math import ceil
from typing import Any, override

import grpc  # type: ignore[import-untyped]
from durabletask.internal import helpers
from durabletask.internal import orchestrator_service_pb2 as pb
from durabletask.testing.in_memory_backend import (
    InMemoryOrchestrationBackend,
    OrchestrationInstance,
)

LEAST_PAUSE_SECONDS = 0.05
HISTORY_EVENTS_MAX = 1_000_000
WAKING = ("executionResumed", "executionTerminated")
OVER = (
    pb.ORCHESTRATION_STATUS_COMPLETED,
    pb.ORCHESTRATION_STATUS_FAILED,
    pb.ORCHESTRATION_STATUS_TERMINATED,
)


class Timers:
    """Runs each callback once, at its time or soon after, on a thread that serves no calls."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="durable-timers")

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        """Run a callback in so many seconds; from any thread, while the loop runs."""
        self._loop.call_soon_threadsafe(
            self._loop.call_later, seconds, self._loop.run_in_executor, self._thread, callback
        )

    def close(self) -> None:
        """End the thread; what is not due is never run. The loop must have ended before."""
        self._thread.shutdown()


class TimedBackend(InMemoryOrchestrationBackend):
    """Instances and entities in memory; safe for threads.

    Where the gRPC methods suffice, only they are overridden. The four private methods below have no
    public counterpart: the package starts a thread that sleeps for each timer, delayed signal and
    sub-orchestration, and queues instances that may not run. They need its private state, too. The
    type checker fails when a version of the package no longer has one of these names (`override`).
    """

    def __init__(self, timers: Timers) -> None:
        super().__init__(max_history_size=HISTORY_EVENTS_MAX)
        self._timers = timers
        self._polling_seconds = 0.0
        self._woken_at = time.monotonic()
        self._due: list[Callable[[], None]] = []
        self._starts: dict[str, datetime] = {}
        self._parents: dict[str, list[tuple[str, int]]] = {}

    @override
    def StartInstance(self, request: pb.CreateInstanceRequest, context: Any) -> Any:
        """Create an instance; one with a start time in the future stays pending until then.

        The id of an instance that is over starts anew, as the extension's default has it
        (`overridableExistingInstanceStates` = NonRunningStates); a client may name other states.
        """
        with self._lock:
            policy = request.orchestrationIdReusePolicy
            if not policy.replaceableStatus:
                policy.replaceableStatus.extend(OVER)
            response = super().StartInstance(request, context)
            instance_id = response.instanceId
            self._starts.pop(instance_id, None)  # of an instance this one replaces
            self._enqueue_orchestration(instance_id)
            start = request.scheduledStartTimestamp.ToDatetime(tzinfo=UTC)
            if start > datetime.now(UTC):
                self._starts[instance_id] = start
                queued = self._orchestration_queue
                self._orchestration_queue = deque(one for one in queued if one != instance_id)
                self._orchestration_queue_set.discard(instance_id)
                self._call_at(start, partial(self._begin, instance_id, start))
            return response

    @override
    def RaiseEvent(self, request: pb.RaiseEventRequest, context: Any) -> Any:
        """Give an instance an event; one that is over refuses it, as with Azure Storage."""
        with self._lock:
            instance = self._instances.get(request.instanceId)
            if instance is not None and instance.status in OVER:
                ended = f"the orchestration instance {request.instanceId!r} is not running"
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, ended)
            return super().RaiseEvent(request, context)

    @override
    def TerminateInstance(self, request: pb.TerminateRequest, context: Any) -> Any:
        """Terminate an instance and, if that is asked for, the sub-orchestrations it waits for."""
        with self._lock:
            only_this = pb.TerminateRequest(instanceId=request.instanceId, recursive=False)
            if request.HasField("output"):
                only_this.output.CopyFrom(request.output)
            response = super().TerminateInstance(only_this, context)
            if request.recursive:
                children = [
                    child
                    for child, parents in self._parents.items()
                    if any(parent == request.instanceId for parent, _ in parents)
                ]
                for child in children:
                    below = pb.TerminateRequest()
                    below.CopyFrom(request)
                    below.instanceId = child
                    self.TerminateInstance(below, context)
            return response

    @override
    def _enqueue_orchestration(self, instance_id: str) -> None:
        """Queue an instance for a turn, unless it is over, not started, or has its turn now."""
        self._wake()
        instance = self._instances.get(instance_id)
        if instance is None or instance.status in OVER:
            return
        if instance_id in self._starts or instance_id in self._orchestration_in_flight:
            return
        super()._enqueue_orchestration(instance_id)

    def set_polling(self, seconds: float) -> None:
        """Let what is due be found by looks that are at most so far apart; 0 finds it at once."""
        with self._lock:
            self._polling_seconds = seconds

    def _call_at(self, moment: datetime, callback: Callable[[], None]) -> None:
        """Run a callback at the first look at the queue when its time has come; under the lock.

        With Azure Storage a delayed message is one that stays invisible for so long. Nobody is told
        when it can be seen: it is found by the next look.
        """
        self._wake()
        self._timers.after(seconds_until(moment), partial(self._become_due, callback))

    def _become_due(self, callback: Callable[[], None]) -> None:
        with self._lock:
            self._due.append(callback)
            now = time.monotonic()
            look_at = next_look(self._woken_at, now, self._polling_seconds)
        self._timers.after(look_at - now, self._look)

    def _wake(self) -> None:
        """Look at the queue now: whoever adds a message to its own queue wakes who looks at it."""
        self._woken_at = time.monotonic()
        if self._due:
            self._timers.after(0.0, self._look)

    def _look(self) -> None:
        with self._lock:
            due, self._due = self._due, []
        for callback in due:
            callback()

    @override
    def _process_create_timer_action(
        self, instance: OrchestrationInstance, action: pb.OrchestratorAction
    ) -> None:
        fire_at = action.createTimer.fireAt.ToDatetime(tzinfo=UTC)
        created = helpers.new_timer_created_event(action.id, fire_at)
        instance.history.append(created)
        if instance.status == pb.ORCHESTRATION_STATUS_PENDING:
            instance.status = pb.ORCHESTRATION_STATUS_RUNNING
        self._call_at(fire_at, partial(self._fire, instance, created))

    @override
    def _schedule_delayed_entity_operation(
        self, entity_id: str, event: pb.HistoryEvent, fire_at: datetime
    ) -> None:
        self._call_at(fire_at, partial(self._signal, entity_id, event))

    @override
    def _watch_sub_orchestration(
        self, parent_instance_id: str, sub_instance_id: str, task_id: int
    ) -> None:
        self._parents.setdefault(sub_instance_id, []).append((parent_instance_id, task_id))
        self.notify_parents(sub_instance_id)

    def notify_parents(self, instance_id: str) -> None:
        """Give the end of an instance that is over to those that wait for it; under the lock."""
        instance = self._instances.get(instance_id)
        if instance is None or instance.status not in OVER:
            return
        for parent_id, task_id in self._parents.pop(instance_id, ()):
            parent = self._instances.get(parent_id)
            if parent is not None and parent.status not in OVER:
                self._add_event(parent, end_of_sub_orchestration(instance, task_id))

    def resume_after_turn(self, instance_id: str) -> None:
        """Queue the next turn of an instance if an event came up meanwhile; under the lock."""
        instance = self._instances.get(instance_id)
        if instance is None or not instance.pending_events:
            return
        kinds = {event.WhichOneof("eventType") for event in instance.pending_events}
        if instance.status != pb.ORCHESTRATION_STATUS_SUSPENDED or kinds.intersection(WAKING):
            self._enqueue_orchestration(instance_id)

    def _begin(self, instance_id: str, start: datetime) -> None:
        with self._lock:
            if self._starts.get(instance_id) == start:
                del self._starts[instance_id]
                self._enqueue_orchestration(instance_id)

    def _fire(self, instance: OrchestrationInstance, created: pb.HistoryEvent) -> None:
        with self._lock:
            current = self._instances.get(instance.instance_id)
            if current is not instance or created not in instance.history:
                return  # another run of the same id, which set other timers
            if instance.status not in OVER:
                fire_at = created.timerCreated.fireAt.ToDatetime(tzinfo=UTC)
                fired = helpers.new_timer_fired_event(created.eventId, fire_at)
                self._add_event(instance, fired)

    def _signal(self, entity_id: str, event: pb.HistoryEvent) -> None:
        with self._lock:
            self._queue_entity_operation(entity_id, event)

    def _add_event(self, instance: OrchestrationInstance, event: pb.HistoryEvent) -> None:
        instance.pending_events.append(event)
        instance.last_updated_at = datetime.now(UTC)
        self._enqueue_orchestration(instance.instance_id)


def next_look(woken_at: float, now: float, longest_seconds: float) -> float:
    """Return when a queue that was last busy at a time is next looked at, now or later.

    As DurableTask.AzureStorage does: after a look that finds nothing the pause is twice as long,
    from 50 ms up to `longest_seconds`. It varies its pauses by a fifth; these do not vary.
    """
    if longest_seconds <= 0:
        return now
    look_at, pause = woken_at, min(LEAST_PAUSE_SECONDS, longest_seconds)
    while look_at < now:
        if pause >= longest_seconds:
            return look_at + ceil((now - look_at) / longest_seconds) * longest_seconds
        look_at += pause
        pause = min(2 * pause, longest_seconds)
    return look_at


def end_of_sub_orchestration(instance: OrchestrationInstance, task_id: int) -> pb.HistoryEvent:
    if instance.status == pb.ORCHESTRATION_STATUS_COMPLETED:
        return helpers.new_sub_orchestration_completed_event(task_id, instance.output)
    details = instance.failure_details
    reason = details.errorMessage if details else "the sub-orchestration was terminated"
    return helpers.new_sub_orchestration_failed_event(task_id, Exception(reason))


def seconds_until(moment: datetime) -> float:
    """Return the seconds until a moment; negative if it is over."""
    return (moment - datetime.now(UTC)).total_seconds()
