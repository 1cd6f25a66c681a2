"""Which listener serves which trigger; a type that is not here is refused by the host."""

from local.functions_host.function import Function
from local.functions_host.triggers.cosmos import CosmosListener
from local.functions_host.triggers.durable import (
    activity_listener,
    entity_listener,
    orchestration_listener,
)
from local.functions_host.triggers.http import HttpListener
from local.functions_host.triggers.listener import HostContext, Listener, ListenerFactory
from local.functions_host.triggers.manual import ManualListener
from local.functions_host.triggers.service_bus import ServiceBusListener
from local.functions_host.triggers.timer import TimerListener

LISTENERS: dict[str, ListenerFactory] = {
    "activityTrigger": activity_listener,
    "cosmosDBTrigger": CosmosListener,
    "entityTrigger": entity_listener,
    "httpTrigger": HttpListener,
    "manualTrigger": ManualListener,
    "orchestrationTrigger": orchestration_listener,
    "serviceBusTrigger": ServiceBusListener,
    "timerTrigger": TimerListener,
}

DURABLE = (activity_listener, entity_listener, orchestration_listener)


def listener_of(function: Function, context: HostContext) -> Listener:
    """Make the listener of a function; what its binding asks for and is not honoured is Refused."""
    factory = LISTENERS[function.trigger.type]
    if function.is_disabled and factory in DURABLE:
        raise function.trigger.refused("switching off a Durable function is not honoured")
    return factory(function, context)
