"""Azure on one machine: namespaces, Cosmos account, control and hosts as one."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from local.config import InvalidLocalConfig, LocalConfig, fill_placeholders
from local.control import Control, QueueDepths
from local.cosmos.server import Cosmos
from local.counters import Counters
from local.faults import Faults, Target
from local.hosts import Hosts, HostSpec
from local.loopback import HOST, held_port
from local.servicebus.server import Namespace

if TYPE_CHECKING:
    from local.durable.backend import DurableBackend


@dataclass(frozen=True, slots=True)
class CloudOptions:
    """The options of a cloud: `data` None keeps all in memory; `port_base` None takes free ports.

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
        regions = config.hosts.regions
        first_host = 2 + len(config.namespaces)
        first_hub = first_host + len(regions)
        first_cosmos_region = first_hub + len(regions)
        self._host_ports = {name: self._port(first_host + at) for at, name in enumerate(regions)}
        self._hub_ports = {name: self._port(first_hub + at) for at, name in enumerate(regions)}
        self.cosmos = Cosmos(
            config.cosmos,
            port=self._port(1),
            region_ports=[
                self._port(first_cosmos_region + at) for at in range(len(config.cosmos.regions))
            ],
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

    def __exit__(self, *_error: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start namespaces, Cosmos, control and hosts; what had started stops when one fails.

        Raises OSError for a port that is taken, InvalidLocalConfig, HostFailed.
        """
        try:
            for namespace in self.namespaces.values():
                self._start(namespace)
            self._start(self.cosmos)
            for region in self._config.hosts.hubs:
                self._start_hub(region)
            self.hosts = Hosts(self._host_specs())
            self.control = Control(
                port=self._port(0),
                faults=self.faults,
                counters=self.counters,
                hosts=self.hosts,
                cosmos=self.cosmos,
                depths=self.depths,
                contents=self.contents,
                targets=self.targets,
            )
            self._start(self.control)
            self._start(self.hosts)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop in the reverse order of starting; a second call does nothing."""
        self._running.close()

    def depths(self) -> QueueDepths:
        return {
            name: {one: namespace.depth(one) for one in namespace.entities()}
            for name, namespace in self.namespaces.items()
        }

    def contents(self, namespace: str, queue: str) -> list[dict[str, str | int | None]]:
        """Return the content of a queue; raises KeyError for an unknown namespace or queue."""
        return self.namespaces[namespace].contents(queue)

    def targets(self) -> list[Target]:
        found = self.cosmos.targets()
        for namespace in self.namespaces.values():
            found += namespace.targets()
        for hub in self.durable.values():
            found += hub.targets()
        return found

    def describe(self) -> dict[str, Any]:
        """The line that `serve` prints."""
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

    def settings_of(self, region: str) -> dict[str, str]:
        """The app's settings in a region, for another host than the ones here.

        Addresses are known before the start with a port base only. Settings that name a task hub
        are left out: other hosts keep theirs in a storage account. Raises InvalidLocalConfig for a
        region that has no host.
        """
        hosts = self._config.hosts
        if region not in hosts.regions:
            known = ", ".join(hosts.regions) or "none"
            raise InvalidLocalConfig(f"{region} is not a region of Hosts, only {known}")
        values = {key: text for key, text in hosts.values.items() if "{durable" not in text}
        return fill_placeholders(values, self._addresses(region)) | dict(self._options.settings)

    def _start(self, part: "Namespace | Cosmos | DurableBackend | Hosts | Control") -> None:
        part.start()
        self._running.callback(part.stop)

    def _start_hub(self, region: str) -> None:
        from local.durable.backend import DurableBackend

        port = self._hub_ports[region]
        hub = DurableBackend(region, port=port, faults=self.faults, counters=self.counters)
        self._start(hub)
        self.durable[region] = hub

    def _port(self, offset: int) -> int:
        base = self._options.port_base
        return 0 if base is None else base + offset

    def _host_specs(self) -> list[HostSpec]:
        options = self._options
        if options.app is None:
            return []
        # Where hosts keep what outlives them, if anything does.
        kept = {"LOCAL_HOST_DATA": str(options.data.resolve() / "hosts")} if options.data else {}
        specs = []
        for region in self._config.hosts.regions:
            values = fill_placeholders(self._config.hosts.values, self._addresses(region))
            # The port is held until the cloud stops, whatever becomes of the host.
            holder = held_port(self._host_ports[region], f"the host of region {region}")
            port = self._running.enter_context(holder)
            settings = {**kept, **values, **options.settings}
            log = options.logs / f"host-{region}.log"
            specs.append(HostSpec(region, options.app, settings, log, port))
        return specs

    def _addresses(self, region: str) -> dict[str, str]:
        """Return what the placeholders in the app settings of a region's host stand for."""
        buses = {f"servicebus.{n}": ns.connection_string for n, ns in self.namespaces.items()}
        hubs = {f"durable.{name}": hub.address for name, hub in self.durable.items()}
        if region in self.durable:
            hubs["durable"] = self.durable[region].address
        return buses | hubs | {"region": region, "cosmos": self.cosmos.connection_string}
