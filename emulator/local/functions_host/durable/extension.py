"""Durable Functions in a host: its client binding, and when its work runs.

Nothing of Durable's libraries is imported before `start` finds that the app has such functions.
"""

import json
import os
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from local.functions_host.config.functions import AppFunction, Binding
from local.functions_host.config.host_json import DurableOptions
from local.functions_host.config.keys import Keys
from local.functions_host.config.settings import AppSettings
from local.functions_host.durable.kinds import DurableKind, FunctionsByName
from local.functions_host.durable.management import EXTENSION, WEBHOOKS, InstanceManagement
from local.functions_host.protos import TypedData
from local.functions_host.web import WebServer
from local.functions_host.worker.process import WorkerProcess

if TYPE_CHECKING:
    from local.functions_host.durable.work_items import WorkItemStream

ADDRESS_SETTING = "LOCAL_DURABLE_ADDRESS"
CONNECTION = "Storage"
LARGEST_MESSAGE_BYTES = 2**31 - 1


class DurableExtension:
    """Collects the functions and clients before the start; does nothing when there are none."""

    def __init__(
        self,
        region: str,
        settings: AppSettings,
        options: DurableOptions,
        keys: Keys,
        worker: WorkerProcess,
    ) -> None:
        self._worker_name = f"{region}-{os.getpid()}"
        self._address = settings.values.get(ADDRESS_SETTING, "")
        self._keys = keys
        self._options = options
        self._worker = worker
        self._functions: FunctionsByName = {}
        self._clients: list[tuple[AppFunction, Binding]] = []
        self._management: InstanceManagement | None = None
        self._stream: WorkItemStream | None = None

    def add(self, kind: DurableKind, name: str, function: AppFunction) -> None:
        """Add a function under the name work items carry; the same name twice is Unsupported."""
        self._check(function.trigger)
        key = (kind, name.lower() if kind is DurableKind.ENTITY else name)
        if key in self._functions:
            raise function.trigger.unsupported(f"{name} is there already")
        self._functions[key] = function

    def add_client(self, function: AppFunction, binding: Binding) -> None:
        """Add a client binding; its value is known at the start."""
        binding.only("durableRequiresGrpc")
        self._check(binding)
        self._clients.append((function, binding))

    def add_routes(self, server: WebServer) -> None:
        if self._functions or self._clients:
            self._management = InstanceManagement(self._address, self._keys)
            self._management.add_routes(server)

    def start(self, host_url: str, takes_work: bool = True) -> None:
        """Give clients their value and begin to take work; a hub that is down is tried again."""
        for function, binding in self._clients:
            key = self._keys.of_extension(EXTENSION)
            value = client_input(self._address, self._options.hub_name, host_url, key)
            self._worker.bind(function.id, binding.name, value)
        if self._functions and takes_work:
            from local.functions_host.durable.work_items import WorkItemStream

            self._stream = WorkItemStream(
                self._address, self._worker_name, self._functions, self._options, self._worker
            )
            self._stream.start()

    async def stop(self, drain_seconds: float) -> None:
        """Take nothing new, answer for what runs within the limit, give back the rest."""
        if self._stream is not None:
            await self._stream.stop(drain_seconds)
        if self._management is not None:
            await self._management.close()

    def _check(self, binding: Binding) -> None:
        if not binding.flag("durableRequiresGrpc", False):
            only = "only azure-functions-durable 2 is honoured (durableRequiresGrpc)"
            raise binding.unsupported(only)
        if not self._address:
            missing = f"the app setting {ADDRESS_SETTING} is missing"
            raise binding.unsupported(f"{missing}: host:port of the Durable backend")


def client_input(backend_address: str, hub_name: str, host_url: str, key: str) -> TypedData:
    """The value of a `durableClient` binding, of which azure-functions-durable 2 makes its client.

    It says where the task hub and the management endpoints are; `key` is for the endpoints.
    """
    query = {"taskHub": hub_name, "connection": CONNECTION, "code": key}
    base_url = f"{host_url}{WEBHOOKS}"
    document = {
        "taskHubName": hub_name,
        "connectionName": CONNECTION,
        "creationUrls": {},
        "managementUrls": {},
        "baseUrl": base_url,
        "httpBaseUrl": base_url,
        "rpcBaseUrl": f"http://{backend_address}",
        "requiredQueryStringParameters": urlencode(query),
        "maxGrpcMessageSizeInBytes": LARGEST_MESSAGE_BYTES,
        "useForwardedHost": False,
    }
    return TypedData(string=json.dumps(document))
