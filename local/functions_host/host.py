"""One Functions host: an app loaded, its listeners started, and all of it stopped in order."""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from local.functions_host import host_json
from local.functions_host.admin import Admin
from local.functions_host.durable.work import DurableWork
from local.functions_host.function import Function, read_function
from local.functions_host.keys import Keys
from local.functions_host.settings import AppSettings
from local.functions_host.triggers.listener import HostContext, Listener
from local.functions_host.triggers.table import LISTENERS, listener_of
from local.functions_host.web import WebServer
from local.functions_host.worker import Worker

log = logging.getLogger(__name__)

DRAIN_SECONDS = 5.0


class Host:
    """Runs one app for one region. `load` reads everything that can be refused."""

    def __init__(
        self, context: HostContext, listeners: Mapping[Function, Listener], admin: Admin
    ) -> None:
        self._context = context
        self._listeners = listeners
        self._admin = admin

    @classmethod
    async def load(
        cls, app: Path, port: int, region: str, settings: AppSettings, limits: host_json.HostJson
    ) -> "Host":
        """Load the app and make its listeners; nothing listens yet. Raises Refused."""
        worker = await Worker.load(app, limits.function_timeout_seconds)
        durable = DurableWork(region, settings, limits.durable, worker)
        keys = Keys.read(settings.values)
        context = HostContext(region, settings, limits, keys, worker, WebServer(port), durable)
        listeners = {
            function: listener_of(function, context)
            for metadata in worker.metadata
            for function in (read_function(metadata, settings, LISTENERS),)
        }
        for function in listeners:
            for binding in function.others:
                if binding.type == "durableClient":
                    durable.add_client(function, binding)
        durable.add_to(context.web)
        admin = Admin(region, listeners, keys)
        admin.add_to(context.web)
        return cls(context, listeners, admin)

    @property
    def functions(self) -> list[str]:
        """The names of the app's functions, in the order of the app."""
        return [function.name for function in self._listeners]

    async def start(self) -> str:
        """Start every listener and the web server; the answer is its URL."""
        url = await self._context.web.start(DRAIN_SECONDS)
        self._context.durable.start(url)
        for function, listener in self._listeners.items():
            if function.is_disabled:
                log.info("disabled: not listening", extra={"function": function.name})
            else:
                await listener.start()
        log.info("listening on %s: %s", url, ", ".join(self.functions))
        return url

    async def stop(self) -> None:
        """Stop taking work, drain within the limit, settle and let go of sessions and leases."""
        log.info("stopping")
        stops = [listener.stop(DRAIN_SECONDS) for listener in self._listeners.values()]
        stops += [self._context.durable.stop(DRAIN_SECONDS), self._admin.stop(DRAIN_SECONDS)]
        await asyncio.gather(*stops, self._context.web.stop())
        log.info("stopped")
