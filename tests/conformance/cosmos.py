"""The live tests of azure-cosmos against the local Cosmos DB."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from tests.conformance.suite import NotApplicable, Suite

CONFIG = CosmosConfig.parse({"Database": "conformance", "Consistency": "Session"})


@contextmanager
def start_account() -> Iterator[Mapping[str, str]]:
    with Cosmos(CONFIG) as cosmos:
        # Two names of this machine are the two regions of some tests.
        endpoint = f"http://localhost:{cosmos.port}/"
        yield {"ACCOUNT_HOST": endpoint, "ACCOUNT_KEY": cosmos.key}


COSMOS = Suite(
    distribution="azure-cosmos",
    version="4.17.1",
    folder="tests",
    marks=("cosmosEmulator", "cosmosLong", "cosmosQuery", "cosmosSplit", "cosmosSearchQuery"),
    preparer="tests.conformance.cosmos_preparer",
    start=start_account,
    refusal="the local Cosmos DB does not offer",
    not_applicable=(
        NotApplicable(
            "signs in with Entra ID over TLS; the account knows its master key only",
            ("test_aad*",),
        ),
    ),
)
