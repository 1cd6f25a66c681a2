"""Asking the package's backend for one work item without waiting for it.

Its `GetWorkItems` is a loop that looks for an item and then waits on an event, as long as the
caller is there. With a caller that is there for one look, and an event on which nobody waits, it
becomes a question.
"""

import threading
from collections.abc import Callable

from durabletask.internal import orchestrator_service_pb2 as pb

from local.durable.leases import Kind


class Bell(threading.Event):
    """The event the backend sets when there is work: calls back instead of being waited on."""

    def __init__(self, ring: Callable[[], None]) -> None:
        super().__init__()
        self._ring = ring

    def set(self) -> None:
        """Call back."""
        self._ring()

    def wait(self, timeout: float | None = None) -> bool:  # noqa: ARG002 - the event's signature
        """Do not wait."""
        return False


class OneLook:
    """A caller that is there once."""

    def __init__(self) -> None:
        self._is_there = True

    def is_active(self) -> bool:
        """True the first time, then False."""
        was_there, self._is_there = self._is_there, False
        return was_there


def within_limits(
    request: pb.GetWorkItemsRequest, held: Callable[[Kind], int]
) -> pb.GetWorkItemsRequest:
    """Build the request that leaves out the kinds of which the worker holds its fill.

    A worker that sets no filters takes everything, whatever limits it names.
    """
    wanted = pb.GetWorkItemsRequest()
    wanted.CopyFrom(request)
    if not request.HasField("workItemFilters"):
        return wanted
    filters = wanted.workItemFilters
    if held(Kind.ORCHESTRATION) >= request.maxConcurrentOrchestrationWorkItems:
        filters.ClearField("orchestrations")
    if held(Kind.ACTIVITY) >= request.maxConcurrentActivityWorkItems:
        filters.ClearField("activities")
    if held(Kind.ENTITY) >= request.maxConcurrentEntityWorkItems:
        filters.ClearField("entities")
    return wanted
