"""The Durable functions of a host: what they are, and when the stream of their work runs.

Nothing of Durable's libraries is imported before `start` finds that the app has such functions.
"""

import os
from typing import TYPE_CHECKING

from local.functions_host.durable.client import EXTENSION, client_input
from local.functions_host.durable.functions import DurableFunctions, Kind
from local.functions_host.durable.management import Management
from local.functions_host.function import Binding, Function
from local.functions_host.host_json import DurableOptions
from local.functions_host.keys import Keys
from local.functions_host.settings import AppSettings
from local.functions_host.web import WebServer
from local.functions_host.worker import Worker

if TYPE_CHECKING:
    from local.functions_host.durable.stream import WorkStream

ADDRESS_SETTING = "LOCAL_DURABLE_ADDRESS"


class DurableWork:
    """Collects the functions and clients before the start; does nothing when there are none."""

    def __init__(
        self, region: str, settings: AppSettings, options: DurableOptions, worker: Worker
    ) -> None:
        self._name = f"{region}-{os.getpid()}"
        self._settings = settings
        self._keys = Keys.read(settings.values)
        self._options = options
        self._worker = worker
        self._functions = DurableFunctions()
        self._clients: list[tuple[Function, Binding]] = []
        self._management: Management | None = None
        self._stream: WorkStream | None = None

    def add(self, kind: Kind, name: str, function: Function) -> None:
        """Add a function under the name work items call it by; Refused if there is no backend."""
        require_grpc(function.trigger)
        self._address(function.trigger)
        self._functions.add(kind, name, function)

    def add_client(self, function: Function, binding: Binding) -> None:
        """Add a client binding; its value is known at the start."""
        binding.only("durableRequiresGrpc")
        require_grpc(binding)
        self._address(binding)
        self._clients.append((function, binding))

    def add_to(self, server: WebServer) -> None:
        """Add the management endpoints, if the app has to do with Durable at all."""
        if self._functions or self._clients:
            self._management = Management(self._settings.values[ADDRESS_SETTING], self._keys)
            self._management.add_to(server)

    def start(self, host_url: str) -> None:
        """Hand clients their settings and begin to take work; a backend that is down is tried."""
        for function, binding in self._clients:
            key = self._keys.of_extension(EXTENSION)
            value = client_input(self._address(binding), self._options.hub_name, host_url, key)
            self._worker.bind(function.id, binding.name, value)
        if self._functions:
            from local.functions_host.durable.stream import WorkStream

            address = self._settings.values[ADDRESS_SETTING]
            self._stream = WorkStream(
                address, self._name, self._functions, self._options, self._worker
            )
            self._stream.start()

    async def stop(self, drain_seconds: float) -> None:
        """Take nothing new, answer for what runs within the limit, give back the rest."""
        if self._stream is not None:
            await self._stream.stop(drain_seconds)
        if self._management is not None:
            await self._management.close()

    def _address(self, binding: Binding) -> str:
        address = self._settings.values.get(ADDRESS_SETTING)
        if not address:
            raise binding.refused(
                f"the app setting {ADDRESS_SETTING} is missing: host:port of the Durable backend"
            )
        return address


def require_grpc(binding: Binding) -> None:
    """Refuse the protocol of azure-functions-durable 1."""
    if not binding.flag("durableRequiresGrpc", False):
        raise binding.refused("only azure-functions-durable 2 is honoured (durableRequiresGrpc)")
