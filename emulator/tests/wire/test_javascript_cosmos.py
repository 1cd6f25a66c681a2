"""The JavaScript SDK finds the same account."""

import pytest
from azure.cosmos import CosmosClient

from local.cosmos.config import CosmosConfig
from local.cosmos.server import Cosmos
from wire.javascript_packages import run_javascript_tests

pytestmark = pytest.mark.wire

CONFIG = CosmosConfig.parse(
    {
        "Database": "lockstep",
        "Containers": [
            {"Name": "journal", "PartitionKey": "/session"},
            {"Name": "divided", "PartitionKey": "/tail", "Partitions": 4},
        ],
    }
)


def test_azure_cosmos_of_npm_connects_unchanged() -> None:
    with Cosmos(CONFIG) as cosmos:
        report = run_javascript_tests(
            "cosmos.test.cjs", COSMOS_ENDPOINT=cosmos.endpoint, COSMOS_KEY=cosmos.key
        )

        with CosmosClient(cosmos.endpoint, cosmos.key) as client:
            divided = client.get_database_client("lockstep").get_container_client("divided")
            assert len(list(divided.read_feed_ranges())) == 4

    assert "fail 0" in report
    assert "skipped 0" in report
