"""A Cosmos DB account on a port of this machine."""

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from local.cosmos.account import Account
from local.cosmos.authorization import EMULATOR_KEY, MasterKey
from local.cosmos.config import CosmosConfig
from local.cosmos.gateway import COMPONENT, Gateway
from local.counters import Counters
from local.faults import Faults
from local.loopback import HOST, LoopbackService

FILE_NAME = "cosmos.sqlite"


class Cosmos:
    """An account on http://127.0.0.1, from `start` until `stop`; it may be used in `with`.

    With `data_dir` the account is kept in DATA/cosmos.sqlite over restarts, without it in memory.
    `clock` gives seconds since 1970; it decides `_ts` and what has expired.
    """

    def __init__(
        self,
        config: CosmosConfig,
        *,
        port: int = 0,
        faults: Faults | None = None,
        counters: Counters | None = None,
        data_dir: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.key = EMULATOR_KEY
        self._config = config
        self._faults = faults or Faults()
        self._counters = counters or Counters()
        self._path = data_dir / FILE_NAME if data_dir else None
        self._clock = clock
        self._service = LoopbackService(COMPONENT, port=port)
        self._account: Account | None = None

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

    @property
    def port(self) -> int:
        """The port it listens on; known once started."""
        return self._service.port

    @property
    def endpoint(self) -> str:
        """The URL clients connect to."""
        return f"http://{HOST}:{self.port}/"

    @property
    def connection_string(self) -> str:
        """Endpoint and key, as application settings hold them."""
        return f"AccountEndpoint={self.endpoint};AccountKey={self.key};"

    def start(self) -> None:
        """Create what the config names, then listen; raises PortTaken.

        A setting the account does not offer raises Refusal.
        """
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        account = Account(self._path, now=self._clock)
        gateway = Gateway(account, MasterKey(self.key), self._faults, self._counters)
        try:
            account.provide(self._config)
            self._service.start(gateway.handle)
        except BaseException:
            account.close()
            raise
        self._account = account

    def stop(self) -> None:
        """Stop listening and close the file; a second call does nothing."""
        self._service.stop()
        if self._account is not None:
            self._account.close()
            self._account = None
