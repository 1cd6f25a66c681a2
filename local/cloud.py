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
from local.host_process import HostSpec
from local.hosts import Hosts
from local.loopback import HOST, check_free
from local.servicebus.config import NamespaceConfig
from local.servicebus.server import Namespace
from local.targets import Target

if TYPE_CHECKING:
    from local.durable.backend import DurableBackend


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """How to run: `data` None keeps everything in memory; `port_base` None takes free ports.

    With a port base N the ports are N for control, N+1 for Cosmos, then one per namespace and one
    per host, both in the order of the config, the Durable backend, and one per region of Cosmos, if
    there are several. `app` None starts no hosts.
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
        self.durable: DurableBackend | None = None
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
            self._begin_durable()
            specs = self._host_specs()
            for spec in specs:
                check_free(spec.port, f"the host of region {spec.region}")
            self.hosts = Hosts(specs)
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
        return found + (self.durable.targets() if self.durable else [])

    def describe(self) -> dict[str, Any]:
        """Where everything is: the line `serve` prints."""
        durable = {"durable": self.durable.address} if self.durable else {}
        return durable | {
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

    def _begin_durable(self) -> None:
        """Start the Durable backend, if the hosts are to be told where it is."""
        hosts = self._config.hosts
        if any("{durable}" in value for value in hosts.values.values()):
            from local.durable.backend import DurableBackend

            self.durable = DurableBackend(
                self._port(durable_offset(self._config)),
                faults=self.faults,
                counters=self.counters,
            )
            self._begin(self.durable)

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
                self._port(2 + len(self.namespaces) + at),
            )
            for at, region in enumerate(regions)
        ]

    def _kept(self) -> dict[str, str]:
        """Where hosts keep what outlives them, if anything does."""
        data = self._options.data
        return {"LOCAL_HOST_DATA": str(data.resolve() / "hosts")} if data else {}

    def _places(self, region: str) -> dict[str, str]:
        buses = {f"servicebus.{n}": ns.connection_string for n, ns in self.namespaces.items()}
        durable = {"durable": self.durable.address} if self.durable else {}
        return buses | durable | {"region": region, "cosmos": self.cosmos.connection_string}


def durable_offset(config: LocalConfig) -> int:
    """The place of the Durable backend among the ports."""
    return 2 + len(config.namespaces) + len(config.hosts.regions)


def region_offsets(config: LocalConfig) -> range:
    """The places of the regions of Cosmos among the ports."""
    first = durable_offset(config) + 1
    return range(first, first + len(config.cosmos.regions))


def entities(config: NamespaceConfig) -> list[str]:
    """The names of everything in a namespace that can hold messages."""
    names = [queue.name for queue in config.queues]
    for topic in config.topics:
        names += [topic.name, *(one.queue.name for one in topic.subscriptions)]
    return names
