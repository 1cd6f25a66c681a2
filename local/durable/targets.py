"""What faults can hit in the task hub: the methods of its service."""

import re

from durabletask.internal import orchestrator_service_pb2 as pb

from local.durable.gate import HONOURED
from local.faults import Action
from local.targets import Target

SERVICE = pb.DESCRIPTOR.services_by_name["TaskHubSidecarService"]
HAND_OUT = "hand-out"  # an item given to a worker: only counted
NEVER: frozenset[Action] = frozenset()
INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


def operation_of(method: str) -> str:
    """The name of a method as it is counted: `start-instance` for `StartInstance`."""
    return INNER_CAPITAL.sub("-", method).lower()


def target(component: str) -> Target:
    """A region's hub."""
    operations = {operation_of(method.name): HONOURED for method in SERVICE.methods}
    return Target(component, {**operations, HAND_OUT: NEVER})
