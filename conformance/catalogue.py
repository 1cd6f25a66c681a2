"""The suites by name."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from conformance.suite import Suite, read_not_applicable
from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos

CONFIG = CosmosConfig.parse({"Database": "conformance", "Consistency": "Session"})


@contextmanager
def start_account() -> Iterator[Mapping[str, str]]:
    """One account for all tests of azure-cosmos; a client reaches it as `localhost`."""
    with Cosmos(CONFIG) as cosmos:
        # Two names of this machine are the two regions of some tests.
        endpoint = f"http://localhost:{cosmos.port}/"
        yield {"ACCOUNT_HOST": endpoint, "ACCOUNT_KEY": cosmos.key}


@contextmanager
def start_nothing() -> Iterator[Mapping[str, str]]:
    """Each test of azure-servicebus has a namespace of its own, in its own process."""
    yield {}


SUITES = {
    "cosmos": Suite(
        distribution="azure-cosmos",
        marks=("cosmosEmulator", "cosmosLong", "cosmosQuery", "cosmosSplit", "cosmosSearchQuery"),
        preparer="conformance.cosmos_preparer",
        options=(),
        start=start_account,
        refusals=("the local Cosmos DB does not offer",),
        not_applicable=read_not_applicable("cosmos"),
        short=("test_none_options.py*", "test_transactional_batch.py*", "test_aggregate.py*"),
        parts=1,  # tests share the containers of their class
    ),
    "servicebus": Suite(
        distribution="azure-servicebus",
        marks=("liveTest",),
        preparer="conformance.servicebus_preparer",
        options=("--noconftest",),  # it records what goes through a proxy
        start=start_nothing,
        refusals=("is not honoured", "are not honoured", "not honoured:"),
        not_applicable=read_not_applicable("servicebus"),
        short=("test_topic.py*", "test_list_sessions.py*"),
        parts=4,
    ),
}
