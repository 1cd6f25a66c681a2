"""A Cosmos DB account on a port of this machine."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from local.cosmos.config import CosmosConfig
from local.cosmos.http.account import CosmosAccount
from local.cosmos.http.gateway import EMULATOR_KEY, Gateway, MasterKey
from local.cosmos.http.requests import COMPONENT, list_targets
from local.counters import Counters
from local.faults import Faults, Target
from local.loopback import HOST, LoopbackService


class Cosmos:
    """An account on http://127.0.0.1, from `start` until `stop`; it may be used in `with`.

    With `data_dir` the account is kept in DATA/cosmos.sqlite over restarts, without it in memory.
    `clock` gives seconds since 1970; it decides `_ts` and what has expired. An account of several
    regions has a port for each, which `region_ports` may choose, and `port` for all of it.
    """

    def __init__(
        self,
        config: CosmosConfig,
        *,
        port: int = 0,
        region_ports: Sequence[int] | None = None,
        faults: Faults | None = None,
        counters: Counters | None = None,
        data_dir: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.key = EMULATOR_KEY
        self.regions = config.regions
        self._config = config
        self._faults = faults or Faults()
        self._counters = counters or Counters()
        self._path = data_dir / "cosmos.sqlite" if data_dir else None
        self._clock = clock
        more_ports = region_ports or (0,) * len(config.regions)
        more_ports = more_ports if len(config.regions) > 1 else ()
        self._service = LoopbackService(COMPONENT, port=port, more_ports=more_ports)
        self._account: CosmosAccount | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def port(self) -> int:
        """The port it listens on; known once started."""
        return self._service.ports[0]

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}/"

    @property
    def connection_string(self) -> str:
        return f"AccountEndpoint={self.endpoint};AccountKey={self.key};"

    def start(self) -> None:
        """Create what the config names, then listen; raises PortTaken.

        A setting the account does not offer raises RequestRefused.
        """
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        account = CosmosAccount(self._path, clock=self._clock, regions=self._config.regions)
        gateway = Gateway(account, MasterKey(self.key), self._faults, self._counters, self._clock)
        try:
            account.create_missing(self._config)
            self._service.start(gateway.handle)
            account.regions.set_ports(self._service.ports[1:])
        except BaseException:
            account.storage.close()
            raise
        self._account = account

    def targets(self) -> list[Target]:
        """What faults can hit, containers made by clients included; while it runs."""
        if self._account is None:
            return []
        names = self._service.call(self._account.list_container_names)
        return list_targets(names, self.regions)

    @property
    def write_region(self) -> str:
        return self._running.regions.write

    def move_write_region(self, name: str) -> None:
        """Let another region take the writes, at once and for good; raises UnknownRegion."""
        account = self._running
        self._service.call(lambda: account.move_write_region(name))

    @property
    def region_endpoints(self) -> dict[str, str]:
        """The URLs of the regions, if there are several."""
        ports = zip(self.regions, self._service.ports[1:], strict=False)
        return {name: f"http://{HOST}:{port}/" for name, port in ports}

    @property
    def _running(self) -> CosmosAccount:
        if self._account is None:
            raise RuntimeError("the account is not running")
        return self._account

    def stop(self) -> None:
        """Stop listening and close the file; a second call does nothing."""
        self._service.stop()
        if self._account is not None:
            self._account.storage.close()
            self._account = None
