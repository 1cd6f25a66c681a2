"""The live tests of azure-cosmos against the local Cosmos DB."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from tests.conformance.suite import NotApplicable, Suite

ENTRA = "signs in with Entra ID over TLS; the account knows its master key only"
REGIONS = "needs an account that is written in several regions, or fails over by partition"
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
    other_marks={
        "cosmosMultiRegion": REGIONS,
        "cosmosCircuitBreaker": REGIONS,
        "cosmosCircuitBreakerMultiRegion": REGIONS,
        "cosmosPerPartitionAutomaticFailover": REGIONS,
        "cosmosAADLong": ENTRA,
        "cosmosAADQuery": ENTRA,
        "cosmosAADSplit": ENTRA,
        "cosmosGSI": "needs a preview of Azure that is switched on by account",
        "semanticReranker": "needs a service of Azure beside Cosmos DB",
    },
    preparer="tests.conformance.cosmos_preparer",
    start=start_account,
    refusal="the local Cosmos DB does not offer",
    not_applicable=(
        NotApplicable(
            ENTRA,
            ("test_aad*", "*test_overwrite_with_aad_emulator_credential*"),
        ),
        NotApplicable(
            "reads a file that the source distribution lacks",
            ("*::test_partitioned_collection_path_parser*",),
        ),
        NotApplicable(
            "waits for a time-out of microseconds, before which an account nearby may answer",
            (
                "*::test_client_level_read_timeout_on_queries_and_point_operations*",
                "*::test_policy_level_read_timeout_on_queries_and_point_operations*",
                "*::test_client_request_timeout_when_connection_retry_configuration_specified*",
                "*::test_point_operation_read_timeout*",
                "test_crud.py::TestCRUDOperations::test_read_timeout",
            ),
        ),
        NotApplicable(
            "goes on with a continuation token that Azure once wrote",
            ("*::test_query_with_static_continuation*",),
        ),
    ),
)
