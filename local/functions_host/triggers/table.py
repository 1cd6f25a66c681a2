"""Which listener serves which trigger; a type that is not here is refused by the host."""

from local.functions_host.triggers.cosmos import CosmosListener
from local.functions_host.triggers.http import HttpListener
from local.functions_host.triggers.listener import ListenerFactory
from local.functions_host.triggers.manual import ManualListener
from local.functions_host.triggers.service_bus import ServiceBusListener
from local.functions_host.triggers.timer import TimerListener

LISTENERS: dict[str, ListenerFactory] = {
    "cosmosDBTrigger": CosmosListener,
    "httpTrigger": HttpListener,
    "manualTrigger": ManualListener,
    "serviceBusTrigger": ServiceBusListener,
    "timerTrigger": TimerListener,
}
