"""One Functions host: an app loaded, its listeners started, and all of it stopped in order."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local.functions_host.admin import Admin
from local.functions_host.config.functions import AppFunction, read_function
from local.functions_host.config.host_json import HostJson
from local.functions_host.config.keys import Keys
from local.functions_host.config.settings import AppSettings
from local.functions_host.durable.extension import DurableExtension
from local.functions_host.durable.kinds import DurableKind
from local.functions_host.protos import TypedData
from local.functions_host.triggers.cosmos import CosmosListener
from local.functions_host.triggers.http import HttpListener
from local.functions_host.triggers.listener import HostContext, Listener, ListenerFactory
from local.functions_host.triggers.service_bus import ServiceBusListener
from local.functions_host.triggers.timer import TimerListener
from local.functions_host.web import WebServer
from local.functions_host.worker.invocations import log_result
from local.functions_host.worker.process import WorkerProcess

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0
# So long a host that is told to end goes on taking work, unless nothing runs.
GRACE_SECONDS = 10.0


# By Durable trigger: the kind of function, and the property of the binding that names it.
NAME_KEYS = {
    "orchestrationTrigger": (DurableKind.ORCHESTRATION, "orchestration"),
    "activityTrigger": (DurableKind.ACTIVITY, "activity"),
    "entityTrigger": (DurableKind.ENTITY, "entityName"),
}
DURABLE_GROUP = "durable"


class DurableListener(Listener):
    """Registers one function; its work comes through the stream all Durable functions share."""

    def __init__(self, function: AppFunction, context: HostContext) -> None:
        binding = function.trigger
        if function.is_disabled:
            raise binding.unsupported("switching off a Durable function is not honoured")
        kind, name_key = NAME_KEYS[binding.type]
        binding.only("durableRequiresGrpc", name_key)
        context.durable.add(kind, binding.text(name_key, function.name), function)


class ManualListener(Listener):
    """The manual trigger: a function that only the admin endpoint runs."""

    def __init__(self, function: AppFunction, context: HostContext) -> None:
        function.trigger.only()
        self._function = function
        self._worker = context.worker

    async def run_now(self, text: str) -> None:
        function = self._function
        inputs = {function.trigger.name: TypedData(string=text)}
        log_result(function.name, await self._worker.invoke(function.id, function.name, inputs))


# Which listener serves which trigger; a type that is not here is Unsupported.
LISTENERS: dict[str, ListenerFactory] = {
    **dict.fromkeys(NAME_KEYS, DurableListener),
    "cosmosDBTrigger": CosmosListener,
    "httpTrigger": HttpListener,
    "manualTrigger": ManualListener,
    "serviceBusTrigger": ServiceBusListener,
    "timerTrigger": TimerListener,
}


@dataclass(frozen=True, slots=True)
class FunctionsHost:
    """Runs one app for one region. `load` reads everything that can be refused."""

    _context: HostContext
    _listeners: Mapping[AppFunction, Listener]
    _admin: Admin

    @classmethod
    async def load(
        cls, app: Path, port: int, region: str, settings: AppSettings, limits: HostJson
    ) -> "FunctionsHost":
        """Load the app and make its listeners; nothing listens yet. Raises Unsupported."""
        timeout = limits.function_timeout_seconds
        worker = WorkerProcess(app, region, timeout, settings.invocation_seconds())
        await worker.start()
        keys = Keys.read(settings.values)
        durable = DurableExtension(region, settings, limits.durable, keys, worker)
        web = WebServer(port)
        context = HostContext(region, settings, limits, keys, worker, web, durable)
        listeners: dict[AppFunction, Listener] = {}
        for metadata in worker.functions:
            function = read_function(metadata, settings, LISTENERS)
            listeners[function] = LISTENERS[function.trigger.type](function, context)
        for function in listeners:
            for binding in function.others:
                if binding.type == "durableClient":
                    durable.add_client(function, binding)
        durable.add_routes(web)
        admin = Admin(region, listeners, keys, worker, timeout)
        admin.add_routes(web)
        return cls(context, listeners, admin)

    @property
    def functions(self) -> list[str]:
        """The names of the app's functions, in the order of the app."""
        return [function.name for function in self._listeners]

    @property
    def worker_exhausted(self) -> asyncio.Event:
        """The event after which this host is to end: its workers have died too often."""
        return self._context.worker.exhausted

    async def start(self) -> str:
        """Start every listener of the host's group and the web server; return its URL.

        HTTP functions answer in every group: it is the platform that asks those of their own only.
        """
        url, settings = await self._context.web.start(DRAIN_SECONDS), self._context.settings
        self._context.durable.start(url, takes_work=not settings.excludes(DURABLE_GROUP))
        for function, listener in self._listeners.items():
            if function.is_disabled:
                log.info("disabled: not listening", extra={"function": function.name})
            elif settings.excludes(group_of(function)):
                log.info("of another group: not listening", extra={"function": function.name})
            else:
                await listener.start()
        log.info("listening on %s: %s", url, ", ".join(self.functions))
        return url

    async def stop(self) -> None:
        """End as the real host does: take work for a while more, then cut off what runs.

        Where nothing runs the while is over at once. After a drain nothing more is taken, and what
        runs ends by itself, within the limit of a function.
        """
        log.info("stopping")
        is_at_rest = self._admin.is_draining or await self._context.worker.rest(GRACE_SECONDS)
        seconds = DRAIN_SECONDS if is_at_rest else 0.0
        await self._admin.drain_listeners(seconds)
        stops = [self._context.durable.stop(seconds), self._admin.stop(seconds)]
        await asyncio.gather(*stops, self._context.web.stop())
        await self._context.worker.stop()
        log.info("stopped")


def group_of(function: AppFunction) -> str:
    """The group that a Flex Consumption plan scales a function in, in processes of its own."""
    if function.trigger.type in NAME_KEYS:
        return DURABLE_GROUP
    return "http" if function.trigger.type == "httpTrigger" else f"function:{function.name}"
