"""Azure on one machine: namespaces, Cosmos account, control and hosts as one."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from local.config import LocalConfig, filled
from local.control import Control, Depths
from local.cosmos.server import Cosmos
from local.counters import Counters
from local.faults import Faults
from local.hosts import Hosts, HostSpec
from local.loopback import HOST, held_port
from local.servicebus.config import NamespaceConfig
from local.servicebus.server import Namespace
from local.targets import Target

if TYPE_CHECKING:
    from local.durable.backend import DurableBackend


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """How to run: `data` None keeps everything in memory; `port_base` None takes free ports.

    With a port base N the ports are N for control, N+1 for Cosmos, then one per namespace, one per
    host, one per task hub of a host's region, all in the order of the config, and one per region of
    Cosmos, if there are several. `app` None starts no hosts.
    """

    logs: Path
    app: Path | None = None
    data: Path | None = None
    port_base: int | None = None
    bus_host: str = HOST
    settings: Mapping[str, str] = field(default_factory=dict)


class Cloud:
    """Everything in the config, as one; used in `with`, or through `start` and `stop`."""

    def __init__(self, config: LocalConfig, options: CloudOptions) -> None:
        self.faults = Faults()
        self.counters = Counters()
        self._config = config
        self._options = options
        self._running = ExitStack()
        self.cosmos = Cosmos(
            config.cosmos,
            port=self._port(1),
            region_ports=[self._port(at) for at in region_offsets(config)],
            faults=self.faults,
            counters=self.counters,
            data_dir=options.data,
        )
        self.namespaces = {
            namespace.name: Namespace(
                namespace,
                port=self._port(2 + at),
                host=options.bus_host,
                faults=self.faults,
                counters=self.counters,
                data_dir=options.data,
            )
            for at, namespace in enumerate(config.namespaces)
        }
        self.durable: dict[str, DurableBackend] = {}
        self.hosts = Hosts(())
        self.control: Control | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start namespaces, Cosmos, control and hosts; what had started stops when one fails.

        Raises OSError for a port that is taken, InvalidLocalConfig, HostFailed.
        """
        try:
            for namespace in self.namespaces.values():
                self._begin(namespace)
            self._begin(self.cosmos)
            for region in self._config.hosts.hubs:
                self._begin_hub(region)
            self.hosts = Hosts(self._host_specs())
            self.control = Control(
                port=self._port(0),
                faults=self.faults,
                counters=self.counters,
                hosts=self.hosts,
                cosmos=self.cosmos,
                depths=self.depths,
                targets=self.targets,
            )
            self._begin(self.control)
            self._begin(self.hosts)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop in the reverse order of starting; a second call does nothing."""
        self._running.close()

    def depths(self) -> Depths:
        """Messages by state, per namespace and queue, topic or subscription."""
        return {
            name: {entity: namespace.depth(entity) for entity in entities(namespace.config)}
            for name, namespace in self.namespaces.items()
        }

    def targets(self) -> list[Target]:
        """What faults can hit."""
        found = self.cosmos.targets()
        for namespace in self.namespaces.values():
            found += namespace.targets()
        for hub in self.durable.values():
            found += hub.targets()
        return found

    def describe(self) -> dict[str, Any]:
        """Where everything is: the line `serve` prints."""
        hubs = {region: hub.address for region, hub in self.durable.items()}
        return ({"durable": hubs} if hubs else {}) | {
            "servicebus": {name: ns.connection_string for name, ns in self.namespaces.items()},
            "cosmos": {
                "endpoint": self.cosmos.endpoint,
                "key": self.cosmos.key,
                "database": self._config.cosmos.database,
                "regions": self.cosmos.region_endpoints,
            },
            "hosts": self.hosts.urls,
            "control": self.control.url if self.control else "",
            "queue": self._config.session_queue,
            "containers": {one.name: one.name for one in self._config.cosmos.containers},
        }

    def _begin_hub(self, region: str) -> None:
        """Start a region's task hub."""
        from local.durable.backend import DurableBackend

        hub = DurableBackend(
            region,
            port=self._port(hub_offset(self._config, region)),
            faults=self.faults,
            counters=self.counters,
        )
        self._begin(hub)
        self.durable[region] = hub

    def _begin(self, part: "Namespace | Cosmos | DurableBackend | Hosts | Control") -> None:
        part.start()
        self._running.callback(part.stop)

    def _port(self, offset: int) -> int:
        base = self._options.port_base
        return 0 if base is None else base + offset

    def _host_specs(self) -> list[HostSpec]:
        app = self._options.app
        regions = self._config.hosts.regions if app else ()
        return [
            HostSpec(
                region,
                app or Path(),
                {
                    **self._kept(),
                    **filled(self._config.hosts.values, self._places(region)),
                    **self._options.settings,
                },
                self._options.logs / f"host-{region}.log",
                self._host_port(region),
            )
            for region in regions
        ]

    def _host_port(self, region: str) -> int:
        """The port of a region's host, held until the cloud stops, whatever becomes of the host."""
        port = self._port(2 + len(self.namespaces) + self._config.hosts.regions.index(region))
        return self._running.enter_context(held_port(port, f"the host of region {region}"))

    def _kept(self) -> dict[str, str]:
        """Where hosts keep what outlives them, if anything does."""
        data = self._options.data
        return {"LOCAL_HOST_DATA": str(data.resolve() / "hosts")} if data else {}

    def _places(self, region: str) -> dict[str, str]:
        buses = {f"servicebus.{n}": ns.connection_string for n, ns in self.namespaces.items()}
        hubs = {f"durable.{name}": hub.address for name, hub in self.durable.items()}
        if region in self.durable:
            hubs["durable"] = self.durable[region].address
        return buses | hubs | {"region": region, "cosmos": self.cosmos.connection_string}


def hub_offset(config: LocalConfig, region: str) -> int:
    """The place of a region's task hub among the ports: each region of a host has one."""
    regions = config.hosts.regions
    return 2 + len(config.namespaces) + len(regions) + regions.index(region)


def region_offsets(config: LocalConfig) -> range:
    """The places of the regions of Cosmos among the ports."""
    first = 2 + len(config.namespaces) + 2 * len(config.hosts.regions)
    return range(first, first + len(config.cosmos.regions))


def entities(config: NamespaceConfig) -> list[str]:
    """The names of everything in a namespace that can hold messages."""
    names = [queue.name for queue in config.queues]
    for topic in config.topics:
        names += [topic.name, *(one.queue.name for one in topic.subscriptions)]
    return names
