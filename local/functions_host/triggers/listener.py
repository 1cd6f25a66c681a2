"""What the host asks of a trigger's listener, and what it gives to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from local.functions_host.durable.work import DurableWork
from local.functions_host.function import Function
from local.functions_host.host_json import HostJson
from local.functions_host.keys import Keys
from local.functions_host.settings import AppSettings
from local.functions_host.web import WebServer
from local.functions_host.worker import Worker


@dataclass(frozen=True, slots=True)
class HostContext:
    """What all listeners of a host share."""

    region: str
    settings: AppSettings
    limits: HostJson
    keys: Keys
    worker: Worker
    web: WebServer
    durable: DurableWork


class Listener(Protocol):
    """Waits for events of one function and invokes it.

    Making one reads the whole binding: what it does not honour raises Refused then, not later.
    """

    async def start(self) -> None:
        """Begin to listen; a service that is down is tried for as long as it takes."""

    async def stop(self, drain_seconds: float) -> None:
        """Take nothing new, let what runs end within the limit, and let go of everything."""


@runtime_checkable
class Invocable(Protocol):
    """A listener whose function may be run from the admin endpoint."""

    async def run_now(self, text: str) -> None:
        """Invoke the function once; how it ends is logged."""


type ListenerFactory = Callable[[Function, HostContext], Listener]
