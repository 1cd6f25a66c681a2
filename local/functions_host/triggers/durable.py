"""The Durable triggers: orchestrators, activities and entities, run by the host's work stream."""

from local.functions_host.durable.functions import Kind
from local.functions_host.function import Function
from local.functions_host.triggers.listener import HostContext


class DurableListener:
    """Registers one function; its work comes through the stream all Durable functions share."""

    def __init__(self, kind: Kind, name_key: str, function: Function, context: HostContext) -> None:
        binding = function.trigger
        binding.only("durableRequiresGrpc", name_key)
        context.durable.add(kind, binding.text(name_key, function.name), function)

    async def start(self) -> None:
        """The stream starts for all functions at once."""

    async def stop(self, drain_seconds: float) -> None:
        """The stream drains for all functions at once."""


def orchestration_listener(function: Function, context: HostContext) -> DurableListener:
    """Serve `orchestrationTrigger`."""
    return DurableListener(Kind.ORCHESTRATION, "orchestration", function, context)


def activity_listener(function: Function, context: HostContext) -> DurableListener:
    """Serve `activityTrigger`."""
    return DurableListener(Kind.ACTIVITY, "activity", function, context)


def entity_listener(function: Function, context: HostContext) -> DurableListener:
    """Serve `entityTrigger`."""
    return DurableListener(Kind.ENTITY, "entityName", function, context)
