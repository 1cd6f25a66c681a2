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
    """Start nothing: each test of azure-servicebus has its own namespace, in its own process."""
    yield {}


SUITES = {
    "cosmos": Suite(
        distribution="azure-cosmos",
        marks=("cosmosEmulator", "cosmosLong", "cosmosQuery", "cosmosSplit", "cosmosSearchQuery"),
        unmarked=(),
        preparer="conformance.cosmos_preparer",
        options=(),
        start=start_account,
        # A name in it may stand in quotes, as Python shows them in a text.
        refusal=r"the local Cosmos DB does not offer (?:\\?'[\w.]+\\?'|[^'\"\\\n(])*",
        not_applicable=read_not_applicable("cosmos"),
        short=("test_none_options.py*", "test_aggregate.py*"),
        processes=3,
        parts=1,  # tests share the containers of their class
    ),
    "servicebus": Suite(
        distribution="azure-servicebus",
        marks=("liveTest",),
        unmarked=("mgmt_tests/*::TestServiceBus*",),
        preparer="conformance.servicebus_preparer",
        options=("--noconftest",),  # it records what goes through a proxy
        start=start_nothing,
        refusal=(
            r"queue '[^']+': not honoured: \w.*|(?<=<Detail>)[^<\n]*not honoured[^<\n]*"
            r"|[^:\n]+Error condition: amqp:not-implemented"
        ),
        not_applicable=read_not_applicable("servicebus"),
        short=(
            "test_topic.py::*basic*",
            "test_sb_client.py::*close*",
            "test_sessions.py::*_filter_*",
        ),
        processes=12,  # they wait most of the time: for locks to end, for nothing to come
        parts=6,
    ),
}
