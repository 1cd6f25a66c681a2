"""The Durable triggers: orchestrators, activities and entities."""

from local.functions_host.config.functions import AppFunction
from local.functions_host.durable.extension import DurableKind
from local.functions_host.triggers.listener import HostContext, Listener

NAME_KEYS = {
    "orchestrationTrigger": (DurableKind.ORCHESTRATION, "orchestration"),
    "activityTrigger": (DurableKind.ACTIVITY, "activity"),
    "entityTrigger": (DurableKind.ENTITY, "entityName"),
}
"""By trigger: the kind of function, and the property of the binding that names it."""


class DurableListener(Listener):
    """Registers one function; its work comes through the stream all Durable functions share."""

    def __init__(self, function: AppFunction, context: HostContext) -> None:
        binding = function.trigger
        if function.is_disabled:
            raise binding.unsupported("switching off a Durable function is not honoured")
        kind, name_key = NAME_KEYS[binding.type]
        binding.only("durableRequiresGrpc", name_key)
        context.durable.add(kind, binding.text(name_key, function.name), function)
