"""What several files ask for: a host on a namespace, and the journal through each client.

Whoever asks for `journal` has an `account` fixture of its own.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from local.servicebus.server import Namespace
from wire.cosmos_account import RunningAccount
from wire.cosmos_clients import CLIENTS, container_of
from wire.functions_host_bus import BUS_APP, running_namespace
from wire.functions_host_process import HostProcess, running_host


@pytest.fixture(scope="module")
def namespace() -> Iterator[Namespace]:
    with running_namespace() as namespace:
        yield namespace


@pytest.fixture(scope="module")
def shared_host(
    namespace: Namespace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HostProcess]:
    path = tmp_path_factory.mktemp("host")
    with running_host(path, BUS_APP, ServiceBus=namespace.connection_string) as host:
        yield host


@pytest.fixture
def host(shared_host: HostProcess) -> HostProcess:
    """The host, with nothing seen yet."""
    assert shared_host.request("/api/forget", "POST").status == 200
    return shared_host


@pytest.fixture(params=CLIENTS)
async def journal(account: RunningAccount, request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    async with container_of(request.param, account, "journal") as container:
        yield container
